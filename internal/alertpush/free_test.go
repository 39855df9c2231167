package alertpush_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/diagnosis/deadlock"
	"github.com/clustermutex/unlocker/internal/diagnosis/unclaimed"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// cycle is two processes that wait for each other.
func cycle(since time.Time) deadlock.Cycle {
	a := deadlock.Process{Owner: "billing", Host: "host-1", PID: 7}
	b := deadlock.Process{Owner: "search", Host: "host-2", PID: 8}
	return deadlock.Cycle{Since: since, Waits: []deadlock.Wait{
		{Who: a, Lock: "orders", Held: []deadlock.Process{b}, Since: since},
		{Who: b, Lock: "stock", Held: []deadlock.Process{a, a}, Since: since},
	}}
}

func TestDeadlockIsPushedAfterAMinuteAndResolved(t *testing.T) {
	inWorld(t, func(w *world) {
		w.holds(w.lock("orders"))
		var cycles []deadlock.Cycle
		c := w.config()
		c.Deadlocks = func() []deadlock.Cycle { // as the view, which has a lock of its own
			w.mu.Lock()
			defer w.mu.Unlock()
			return cycles
		}
		are := func(now ...deadlock.Cycle) { w.change(func() { cycles = now }) }
		defer w.start(c)()
		time.Sleep(10 * time.Second)
		began := time.Now()
		are(cycle(began))
		time.Sleep(49 * time.Second)
		are(cycle(began), cycle(time.Time{})) // nobody says since when
		w.wants(w.after(500 * time.Millisecond))
		stuck := slices.DeleteFunc(w.after(10*time.Second+600*time.Millisecond),
			func(p posted) bool { return p.Labels["alertname"] != "UnlockerDeadlock" })
		if len(stuck) != 1 {
			w.Fatalf("told %v", stuck)
		}
		checkCycle(w.T, stuck[0], began)
		for range 2 { // the second time, nothing has changed
			are(cycle(began))
			w.wants(w.after(time.Second))
		}
		are()
		over := w.after(2 * time.Second)
		if len(over) != 1 || over[0].Labels["locks"] != "orders, stock" || over[0].EndsAt.After(over[0].at) {
			w.Errorf("its end is sent as %+v", over)
		}
	})
}

func checkCycle(t *testing.T, got posted, began time.Time) {
	t.Helper()
	if l := got.Labels; len(l) != 4 || l["locks"] != "orders, stock" ||
		l["holders"] != "billing on host-1:7, search on host-2:8" || l["severity"] != "warning" ||
		!got.StartsAt.Equal(began) {
		t.Errorf("labels %q since %v", l, got.StartsAt)
	}
	for name, want := range map[string]string{
		"summary": "Processes are waiting for each other's locks: orders, stock.",
		"description": "billing on host-1:7, search on host-2:8 have been waiting for each other's locks since " +
			began.UTC().Format("2006-01-02 15:04:05Z") + ". Unless they do several jobs at once, they are " +
			"stuck until one gives up or loses a lock at its deadline.",
		"waits": "billing on host-1:7 waits for orders, held by search on host-2:8. search on host-2:8 waits for " +
			"stock, held by billing on host-1:7 and 1 more.",
		"dashboard":   "https://locks.example.org/waiting",
		"runbook_url": "https://github.com/clustermutex/unlocker/blob/main/docs/runbooks.md#unlockerdeadlock",
	} {
		if got.Annotations[name] != want {
			t.Errorf("%s is %q, want %q", name, got.Annotations[name], want)
		}
	}
}

func TestUnclaimedAlertEndsWithTheFirstAcquisition(t *testing.T) {
	inWorld(t, func(w *world) {
		began := time.Now()
		var taken bool
		c := w.config()
		c.Unclaimed = func() ([]unclaimed.Lock, time.Duration) {
			w.mu.Lock()
			defer w.mu.Unlock()
			since := time.Since(began)
			switch {
			case taken:
				return nil, 0
			case since < unclaimed.After:
				return nil, unclaimed.After - since
			}
			first := metadata.Waiter{ID: "t",
				Ticket: metadata.Ticket{Holder: metadata.Holder{Owner: "billing", Hostname: "host-1"}}}
			l := unclaimed.Lock{Name: "orders\x00settle", Since: began, Waiters: 3, First: first}
			return []unclaimed.Lock{l, l}, 0
		}
		defer w.start(c)()
		w.wants(w.after(unclaimed.After - time.Millisecond))
		got := w.after(2 * time.Second)
		if len(got) != 1 {
			w.Fatalf("pushed %+v", got)
		}
		notes := got[0].Annotations
		if l := got[0].Labels; l["alertname"] != "UnlockerLockUnclaimed" || l["owner"] != "billing" ||
			l["severity"] != "warning" ||
			!got[0].StartsAt.Equal(began) || notes["owner"] != "billing" || notes["host"] != "host-1" ||
			!strings.HasPrefix(notes["dashboard"], "https://locks.example.org/lock?name") {
			w.Errorf("%+v", got[0])
		}
		const want = `The lock orders\x00settle has been free since T, and billing on host-1, who is first in line, ` +
			"does not take it. All other waiters are stuck behind it."
		if said := normal(notes["description"]); said != want {
			w.Errorf("it says %q", said)
		}
		w.holds() // which changes nothing here
		w.wants(w.after(time.Second))
		w.change(func() { taken = true })
		over := w.after(2 * time.Second)
		if len(over) != 1 || over[0].EndsAt.After(over[0].at) {
			w.Errorf("its end is sent as %+v", over)
		}
	})
}
