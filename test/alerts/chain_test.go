//go:build alerts

package alerts

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

// TestFromTheLockToThePerson is the chain with Prometheus.
func TestFromTheLockToThePerson(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.lock("stuck", -600) // excluded from removal
	one := w.unlocker()
	two := w.unlocker()
	ops := w.dashboard()
	am := w.alertmanager()
	prometheus := w.prometheus(am, []string{one.addr, two.addr}, ops)

	slow := w.take("billing/invoice run", 3*time.Second, time.Hour)
	dead := w.take("billing/dead", time.Second, 4*time.Second)

	a := w.wants("firing", "UnlockerLockAlerting", "billing/invoice run")
	if a.Labels["owner"] != "billing" || a.Annotations["summary"] == "" {
		t.Errorf("the alert is %v", a)
	}
	a.checkLink(t)
	removed := w.wants("firing", "UnlockerLockAutoUnlocked", "billing/dead")
	if removed.Labels["owner"] != "billing" || removed.Labels["severity"] != "warning" ||
		removed.Annotations["purpose"] != "nightly invoices" {
		t.Errorf("the alert of the removal is %v", removed)
	}
	select {
	case <-dead.Context().Done():
	case <-time.After(proctest.Timeout):
		t.Error("the holder of the removed lock works on")
	}
	if w.wants("firing", "UnlockerLockAlerting", "stuck"); w.told("firing", "UnlockerLockExpired", "stuck") > 0 {
		t.Error("a lock that is excluded on purpose is critical")
	}

	proctest.Eventually(t, "the alert ends when the holder extends", func() error {
		proctest.Must(t, slow.Alive(t.Context(), "still at it"))
		if w.told("resolved", "UnlockerLockAlerting", "billing/invoice run") == 0 {
			return fmt.Errorf("it goes on")
		}
		return nil
	})
	const done = "billing/report"
	proctest.Eventually(t, "every panel shows something", func() error {
		if err := w.take(done, time.Minute, time.Hour).Unlock(); err != nil {
			return err
		}
		if _, err := get("http://" + w.dashAddr); err != nil {
			return err
		}
		return panels(t, prometheus, done)
	})
	picture(t, prometheus)

	proctest.Eventually(t, "no unlocker is said to be down while two run", func() error {
		return quiet(am, "UnlockerDown")
	})
	w.forget() // before its first scrape Prometheus may have missed them
	one.Kill()
	two.Kill()
	down := w.wants("firing", "UnlockerDown", "")
	if down.Labels["severity"] != "critical" || down.Labels["job"] != "unlocker" ||
		!strings.HasSuffix(down.Annotations["runbook_url"], "#unlockerdown") {
		t.Errorf("the alert is %v", down)
	}
	if w.told("resolved", "UnlockerLockAlerting", "stuck") > 0 {
		t.Error("the alert of a lock that is no longer watched was resolved")
	}
}

// checkLink expects an alert to say what for, and to lead to a page that has the rest.
func (a alert) checkLink(t *testing.T) {
	t.Helper()
	host := a.Labels["hostname"]
	page, err := get(a.Annotations["dashboard"])
	if err != nil || host == "" || !strings.Contains(page, host) || a.Annotations["purpose"] != "nightly invoices" ||
		!strings.Contains(page, "nightly invoices") {
		t.Errorf("the alert %v leads to %v\n%.500s", a, err, page)
	}
}

// known are the alerts of a name that Alertmanager has.
func known(am, name string, more ...string) (all []struct {
	Status struct{ InhibitedBy []string }
}, err error) {
	query := url.Values{"filter": append(more, fmt.Sprintf("alertname=%q", name))}
	body, err := get(am + "/api/v2/alerts?" + query.Encode())
	if err == nil {
		err = json.Unmarshal([]byte(body), &all)
	}
	return all, err
}

// inhibited checks that Alertmanager has such an alert, and tells nobody of it because of another.
func inhibited(am, name, lock string) error {
	all, err := known(am, name, fmt.Sprintf("lock=%q", lock))
	if err == nil && (len(all) != 1 || len(all[0].Status.InhibitedBy) == 0) {
		err = fmt.Errorf("Alertmanager knows %v", all)
	}
	return err
}

// quiet checks that Alertmanager has no such alert.
func quiet(am, name string) error {
	all, err := known(am, name)
	if err == nil && len(all) > 0 {
		err = fmt.Errorf("Alertmanager knows %v", all)
	}
	return err
}

// panels runs every query of the dashboards in Prometheus, about a lock where they ask about one, and returns an error
// that names the panels that stay empty.
func panels(t *testing.T, prometheus, lock string) error {
	t.Helper()
	var empty []string
	asked := 0
	for _, text := range texts(t, "deploy/grafana/*.json") {
		var board struct {
			Panels []struct {
				Title   string
				Targets []struct{ Expr string }
			}
		}
		proctest.Must(t, json.Unmarshal([]byte(text), &board))
		for _, p := range board.Panels {
			for _, target := range p.Targets {
				asked++
				query := strings.TrimSuffix(target.Expr, " > 0") // what is shown once there is any
				n := answers(t, prometheus, strings.ReplaceAll(query, "$lock", lock))
				if n == 0 && !slices.Contains(quietPanels(), p.Title) {
					empty = append(empty, p.Title)
				}
			}
		}
	}
	if len(empty) > 0 || asked < 50 {
		return fmt.Errorf("of %d questions these have no answer: %q", asked, empty)
	}
	return nil
}

// quietPanels show nothing here: nothing has failed, nobody waits.
func quietPanels() []string {
	return []string{"Failed requests", "Longest wait", "Oldest lock and longest wait", "Deadlocks",
		"Waits for $lock, and its alert"}
}

// answers is how many series Prometheus answers a query of Grafana with.
func answers(t *testing.T, prometheus, query string) int {
	t.Helper()
	query = strings.NewReplacer("$__rate_interval", "10s", "$cluster", ".*", "$namespace", ".*", "$job", ".*",
		"$dashjob", ".*").Replace(query)
	body, err := get(prometheus + "/api/v1/query?query=" + url.QueryEscape(query))
	if err != nil {
		t.Errorf("%s: %v", query, err)
		return -1
	}
	var answer struct {
		Data struct{ Result []any }
	}
	proctest.Must(t, json.Unmarshal([]byte(body), &answer))
	return len(answer.Data.Result)
}
