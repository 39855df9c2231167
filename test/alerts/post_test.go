//go:build alerts

package alerts

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/testkit/proctest"
	"github.com/clustermutex/unlocker/internal/text"
)

// told is an alert as Prometheus sends it to Alertmanager.
type told struct {
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
	StartsAt    time.Time         `json:"startsAt,omitzero"`
	EndsAt      time.Time         `json:"endsAt,omitzero"` // zero: five minutes after it arrived
}

// post sends alerts to an Alertmanager. It keeps them until their end, so nobody has to repeat them.
func post(t *testing.T, am string, alerts ...told) {
	t.Helper()
	body, err := json.Marshal(alerts)
	proctest.Must(t, err)
	resp, err := http.Post(am+"/api/v2/alerts", "application/json", bytes.NewReader(body))
	proctest.Must(t, err)
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("Alertmanager answers %s", resp.Status)
	}
}

// ended returns the alerts as resolved.
func ended(at time.Time, alerts []told) (resolved []told) {
	for _, a := range alerts {
		a.EndsAt = at
		resolved = append(resolved, a)
	}
	return resolved
}

// hold is a lock that alerts are about.
type hold struct {
	lock, owner, host, team, purpose string
	waiters                          int
	acknowledged                     time.Time // until then; zero: it is not
}

// holdOf is a hold with nothing special about it.
func holdOf(lock, owner, team string) hold {
	return hold{lock: lock, owner: owner, host: "worker-3", team: team, purpose: "nightly invoices"}
}

// shown returns the hold with texts as the unlockers' metrics have them, which is all that Prometheus knows.
func (h hold) shown() hold {
	h.lock = text.NameLabel(h.lock)
	h.owner = text.Label(h.owner)
	h.host = text.Label(h.host)
	h.purpose = text.Label(h.purpose)
	return h
}

func (h hold) alert(name, severity string, starts time.Time, annotations map[string]string) told {
	a := told{StartsAt: starts, EndsAt: time.Now().Add(time.Hour), Annotations: annotations, Labels: map[string]string{
		"alertname": name, "severity": severity, "cluster": "eu", "namespace": "locking", "job": "unlocker",
		"lock": h.lock, "owner": h.owner, "hostname": h.host, "team": h.team,
	}}
	a.Annotations["purpose"] = h.purpose
	a.Annotations["dashboard"] = "https://locks.example.org/lock?name=" + url.QueryEscape(h.lock)
	a.Annotations["runbook_url"] = runbook(name)
	return a
}

// overdue is the alert about a lock past its alert time, which is due an hour after that; the rules add 40 s.
func (h hold) overdue(since time.Time) told {
	h = h.shown()
	annotations := map[string]string{
		"summary":  "Lock " + h.lock + " is held longer than its holder expected.",
		"resolved": "Lock " + h.lock + " was held longer than its holder expected.",
		"description": h.owner + " on " + h.host + " took the lock " + h.lock + " and expected to be done by " +
			instant(since) + ".",
		"next": "Auto-unlock by " + instant(since.Add(time.Hour+40*time.Second)) +
			", 1h 0m 40s after this alert began, unless the holder extends it.",
		"waiters": strconv.Itoa(h.waiters),
	}
	if !h.acknowledged.IsZero() {
		annotations["acknowledged"] = "until " + instant(h.acknowledged)
	}
	return h.alert("UnlockerLockAlerting", "warning", since, annotations)
}

// expired is the alert about a lock that should have been removed.
func (h hold) expired(due time.Time) told {
	h = h.shown()
	return h.alert("UnlockerLockExpired", "critical", due, map[string]string{
		"summary":  "Lock " + h.lock + " is past its deadline and has not been removed.",
		"resolved": "Lock " + h.lock + " was past its deadline.",
		"description": "The lock " + h.lock + " of " + h.owner + " on " + h.host + " was due for removal at " +
			instant(due) + ". Something keeps the unlockers from removing it, and its waiters keep waiting.",
		"next":    "It stays until the cause is gone or an operator unlocks it.",
		"waiters": strconv.Itoa(h.waiters),
	})
}

// removed is the alert about a lock that was removed. It lasts for a quarter of an hour.
func (h hold) removed(at time.Time) told {
	h = h.shown()
	a := h.alert("UnlockerLockAutoUnlocked", "warning", at, map[string]string{
		"summary": "Lock " + h.lock + " was auto-unlocked.",
		"description": h.owner + " on " + h.host + " did not release the lock " + h.lock +
			", so an unlocker removed it at " + instant(at) +
			". Check the holder and its work: another process may hold the lock now.",
	})
	a.EndsAt = at.Add(15 * time.Minute)
	return a
}

func runbook(name string) string {
	return "https://github.com/clustermutex/unlocker/blob/main/docs/runbooks.md#" + strings.ToLower(name)
}

func instant(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05Z") }
