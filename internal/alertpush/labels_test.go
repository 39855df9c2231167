package alertpush_test

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/testkit/proctest"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// Whom an alert is for stands in labels, because Alertmanager routes by labels.
func TestOwnerAndNamedAttributesAreLabels(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.config()
		c.Labels = map[string]string{"cluster": "eu", "team": "platform", "severity": "none"}
		c.Attributes = map[string]string{"team": "team", "size": "rows"}
		w.holds(w.lock("a", func(r *metadata.Record) {
			r.Attributes = map[string]any{"team": "pay\u202ements" + strings.Repeat("x", 200),
				"rows": json.Number("12"), "secret": "x"}
		}), w.lock("b", func(r *metadata.Record) { r.Owner = "" }))
		defer w.start(c)()
		told := w.after(time.Minute)
		if len(told) != 2 {
			w.Fatalf("%d alerts", len(told))
		}
		for _, p := range told {
			want := map[string]string{"cluster": "eu", "team": "platform", "lock": "b", "severity": "warning"}
			if p.Labels["lock"] == "a" {
				want = map[string]string{"cluster": "eu", "size": "12", "owner": "billing", "severity": "warning"}
				if team := p.Labels["team"]; !strings.HasPrefix(team, "pay\ufffdmentsxx") || len(team) > 128 {
					w.Errorf("team %q", team)
				}
			}
			for name, value := range want {
				if p.Labels[name] != value {
					w.Errorf("%s is %q, want %q", name, p.Labels[name], value)
				}
			}
			if _, shown := p.Labels["secret"]; shown {
				w.Error("an attribute that was not configured is a label")
			}
		}

		w.holds(w.lock("a", func(r *metadata.Record) { // of another owner, overdue at once
			r.Owner = "search"
			r.UUID = "7c9e6679-7425-40de-944b-e07fc1f90ae7"
			r.AlertAt = time.Now().Add(-time.Second)
		}))
		time.Sleep(time.Second)
		over, on := false, false
		for _, p := range w.take() {
			ended := !p.EndsAt.After(p.at)
			over = over || p.Labels["lock"] == "a" && p.Labels["owner"] == "billing" && ended
			on = on || p.Labels["lock"] == "a" && p.Labels["owner"] == "search" && !ended
		}
		if !over || !on {
			w.Errorf("the former owner's alert is over: %v, the next owner's is on: %v", over, on)
		}
	})
}

func TestAlertSaysWhatHappensNext(t *testing.T) {
	at := func(d time.Duration) string {
		return "2000-01-01 00:" + time.Unix(0, 0).UTC().Add(d).Format("04:05") + "Z"
	}
	for _, c := range []struct {
		name, lock string
		removes    bool
		change     func(*metadata.Record)
		after      time.Duration
		want       string
	}{
		{"alerting", "a", true, nil, time.Minute,
			"Auto-unlock at " + at(10*time.Minute) + ", 9m 0s after this alert began, unless the holder extends it."},
		{"at once", "a", true, func(r *metadata.Record) { r.AutoUnlockAt = r.AlertAt }, time.Minute,
			"Auto-unlock at " + at(time.Minute) + ", unless the holder extends it."},
		{"alert only", "a", false, nil, time.Minute, "No auto-unlock: the unlockers only alert."},
		{"extended by its holder", "a", true, func(r *metadata.Record) {
			r.Alive = &metadata.Alive{At: r.LockedAt.Add(20 * time.Second)}
			r.AutoUnlockAt = r.LockedAt.Add(80 * time.Second)
		}, time.Minute, "The holder extends it by itself: auto-unlock once it has not done so for 1m 0s."},
		{"excluded", "keep/a", true, nil, time.Minute, "No auto-unlock: the unlockers exclude this lock."},
		{"days", "a", true, func(r *metadata.Record) { r.AutoUnlockAt = r.AlertAt.Add(49*time.Hour + time.Second) },
			time.Minute, "Auto-unlock at 2000-01-03 01:01:01Z, 2d 1h 0m 1s after this alert began, unless the holder " +
				"extends it."},
		{"hours", "a", true, func(r *metadata.Record) { r.AutoUnlockAt = r.AlertAt.Add(time.Hour) }, time.Minute,
			"Auto-unlock at 2000-01-01 01:01:00Z, 1h 0m 0s after this alert began, unless the holder extends it."},
		{"seconds", "a", true, func(r *metadata.Record) { r.AutoUnlockAt = r.AlertAt.Add(2 * time.Second) },
			time.Minute, "Auto-unlock at " + at(62*time.Second) + ", 2s after this alert began, unless the holder " +
				"extends it."},
		{"expired", "a", true, nil, 15 * time.Minute, "It stays until the cause is gone or an operator unlocks it."},
	} {
		t.Run(c.name, inside(func(w *world) {
			config := w.config()
			config.Removes = c.removes
			config.Excluded = func(lock string) bool { return strings.HasPrefix(lock, "keep/") }
			r := w.lock(c.lock)
			if c.change != nil {
				c.change(r)
			}
			w.holds(r)
			defer w.start(config)()
			told := w.after(c.after)
			if len(told) == 0 || told[len(told)-1].Annotations["next"] != c.want {
				w.Errorf("%+v", told)
			}
		}))
	}
}

// The number of waiters changes all the time: an alert is not sent for it, but whenever it is sent it is right.
func TestAlertHasTheNumberOfWaiters(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.config()
		waiting := 0
		c.Waiters = func(queue string) int {
			if queue != "a" {
				w.Errorf("it asks for the queue %q", queue)
			}
			waiting++
			return waiting
		}
		w.holds(w.lock("a"))
		defer w.start(c)()
		time.Sleep(70 * time.Second)
		for range 3 {
			w.holds(w.lock("a", func(r *metadata.Record) {
				r.AlertAt = w.began.Add(time.Minute)
				r.AutoUnlockAt = w.began.Add(10 * time.Minute)
			}))
			time.Sleep(5 * time.Second)
		}
		told := w.take()
		if len(told) != 1 || told[0].Annotations["waiters"] != "1" {
			w.Errorf("%+v", told)
		}
		if told = w.after(time.Minute); len(told) != 1 || told[0].Annotations["waiters"] == "1" {
			w.Errorf("a minute later %+v", told)
		}
	})
}

// What is pushed reads as what Prometheus' rules make of the same lock. promtool tests the rules against this file, and
// internal/diagnosis/alerttext compares all other texts with it.
func TestNextStepMatchesTheRules(t *testing.T) {
	b, err := os.ReadFile("../../deploy/prometheus/tests/locks.test.yaml")
	proctest.Must(t, err)
	rules := normal(string(b))
	inWorld(t, func(w *world) {
		defer w.start(w.config())()
		w.holds(w.lock("l", func(r *metadata.Record) { r.AutoUnlockAt = r.AlertAt.Add(time.Hour + time.Second) }))
		wants := func(name string, told []posted) {
			i := slices.IndexFunc(told, func(p posted) bool { return p.Labels["alertname"] == name })
			if i < 0 || !strings.Contains(rules, normal(told[i].Annotations["next"])) {
				w.Errorf("%s is not pushed as in the rules: %v", name, told)
			}
		}
		wants("UnlockerLockAlerting", w.after(90*time.Second))
		w.holds(w.lock("l", func(r *metadata.Record) {
			r.AlertAt = time.Time{}
			r.AutoUnlockAt = time.Now().Add(-10 * time.Minute)
		}))
		wants("UnlockerLockExpired", w.after(time.Second))
	})
}

// normal is a text on one line, with one time, one quote, and one deadline.
func normal(text string) string {
	text = strings.Join(strings.Fields(strings.ReplaceAll(text, "''", "'")), " ")
	return regexp.MustCompile(`\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ`).ReplaceAllString(text, "T")
}
