package alertpush_test

import (
	"strings"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/diagnosis/unclaimed"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

func TestThatNobodyTakesALockIsPushedWhenItIsDueAndEndsWithTheFirstTurn(t *testing.T) {
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
			"does not take it. Everybody else waits behind it."
		if said := normal(notes["description"]); said != want {
			w.Errorf("it says %q", said)
		}
		w.holds() // which changes nothing here
		w.wants(w.after(time.Second))
		w.mu.Lock()
		taken = true
		close(w.changed)
		w.changed = make(chan struct{})
		w.mu.Unlock()
		over := w.after(2 * time.Second)
		if len(over) != 1 || over[0].EndsAt.After(over[0].at) {
			w.Errorf("its end is sent as %+v", over)
		}
	})
}
