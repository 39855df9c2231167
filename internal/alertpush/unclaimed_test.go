package alertpush_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clustermutex/unlocker/internal/diagnosis/unclaimed"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

func TestThatNobodyTakesALockIsPushedWhenItIsDueAndEndsWithTheFirstTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
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
		time.Sleep(unclaimed.After - time.Millisecond)
		w.wants(w.take())
		time.Sleep(2 * time.Second)
		got := w.take()
		if len(got) != 1 {
			t.Fatalf("pushed %+v", got)
		}
		notes := got[0].Annotations
		if l := got[0].Labels; l["alertname"] != "UnlockerLockUnclaimed" || l["owner"] != "billing" ||
			l["severity"] != "warning" ||
			!got[0].StartsAt.Equal(began) || notes["owner"] != "billing" || notes["host"] != "host-1" ||
			!strings.HasPrefix(notes["dashboard"], "https://locks.example.org/lock?name") {
			t.Errorf("%+v", got[0])
		}
		const want = `The lock orders\x00settle has been free since T, and billing on host-1, who is first in line, ` +
			"does not take it. Everybody else waits behind it."
		if said := normal(notes["description"]); said != want {
			t.Errorf("it says %q", said)
		}
		w.mu.Lock()
		taken = true
		close(w.changed)
		w.changed = make(chan struct{})
		w.mu.Unlock()
		time.Sleep(2 * time.Second)
		over := w.take()
		if len(over) != 1 || over[0].EndsAt.After(over[0].at) {
			t.Errorf("its end is sent as %+v", over)
		}
	})
}
