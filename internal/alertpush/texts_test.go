package alertpush_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/diagnosis/deadlock"
	"github.com/clustermutex/unlocker/internal/diagnosis/unclaimed"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// What is pushed reads as what Prometheus' rules make of the same lock. promtool tests the rules against this file.
func TestPushedAlertsHaveTheTextsOfTheRules(t *testing.T) {
	b, err := os.ReadFile("../../deploy/prometheus/tests/locks.test.yaml")
	if err != nil {
		t.Fatal(err)
	}
	rules := normal(string(b))
	inWorld(t, func(w *world) {
		w.holds(w.lock("l", func(r *metadata.Record) {
			r.Owner = ""
			r.Hostname = ""
			r.AutoUnlockAt = r.AlertAt.Add(time.Hour + time.Second)
		}))
		c := w.config()
		c.Deadlocks = func() []deadlock.Cycle { return []deadlock.Cycle{cycle(w.began)} }
		c.Unclaimed = func() ([]unclaimed.Lock, time.Duration) {
			first := metadata.Waiter{Ticket: metadata.Ticket{Holder: metadata.Holder{Owner: "search",
				Hostname: "host-2"}}}
			return []unclaimed.Lock{{Name: "orders/settle #1", Since: w.began, First: first}}, 0
		}
		time.Sleep(time.Second)
		defer w.start(c)()
		w.pusher.Ended(nil, &metadata.Ending{Lock: "l", Holder: metadata.Holder{Owner: "billing", Hostname: "host-1"},
			Ended: metadata.EndedAutoUnlocked, EndedAt: metadata.Time{Time: time.Now()}})
		told := w.after(90 * time.Second)
		w.holds(w.lock("l", func(r *metadata.Record) {
			r.AlertAt = time.Time{}
			r.AutoUnlockAt = time.Now().Add(-10 * time.Minute)
		}))
		for _, p := range w.after(time.Second) {
			if p.Labels["alertname"] == "UnlockerLockExpired" {
				told = append(told, p)
			}
		}
		w.holds(w.lock("l1", func(r *metadata.Record) { // dead at once
			r.Owner, r.Hostname = "", ""
			r.AutoUnlockAt = r.AlertAt.Add(time.Hour + time.Second)
			r.Process = &metadata.Process{}
			r.Death = &metadata.Statement{Cause: metadata.CauseProcessEnded, EndedAt: metadata.Time{Time: w.began}}
		}), w.lock("early", func(r *metadata.Record) {
			r.Owner, r.Hostname = "", ""
			r.LockedAt = r.LockedAt.Add(24 * time.Hour)
			r.AlertAt = r.LockedAt.Add(time.Hour)
			r.AutoUnlockAt = r.LockedAt.Add(2 * time.Hour)
		}))
		for _, p := range w.after(time.Second) {
			if name := p.Labels["alertname"]; name == "UnlockerLockAbandoned" || name == "UnlockerHolderClockOff" {
				delete(p.Annotations, "next") // of another deadline than in the rules' test
				told = append(told, p)
			}
		}
		seen := map[string]bool{}
		for _, p := range told {
			name := p.Labels["alertname"]
			for _, note := range []string{"summary", "description", "next"} {
				text := normal(p.Annotations[note])
				if !strings.Contains(rules, text) {
					w.Errorf("the rules have no such %s of %s: %s", note, name, text)
				}
				seen[name] = true
			}
		}
		for _, name := range []string{"UnlockerLockAlerting", "UnlockerLockExpired", "UnlockerLockAutoUnlocked",
			"UnlockerLockUnclaimed", "UnlockerDeadlock", "UnlockerLockAbandoned", "UnlockerHolderClockOff"} {
			if !seen[name] {
				w.Errorf("%s is not pushed", name)
			}
		}
	})
}

// normal is a text on one line, with one time, one quote, and one deadline.
func normal(text string) string {
	text = strings.Join(strings.Fields(strings.ReplaceAll(text, "''", "'")), " ")
	return regexp.MustCompile(`\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ`).ReplaceAllString(text, "T")
}
