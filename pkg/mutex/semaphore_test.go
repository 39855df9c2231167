package mutex_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

func TestSemaphoreGivesItsPermitsAndNoMore(t *testing.T) {
	queue(t, func(t *testing.T, q *fake) {
		c := q.locks()
		var permits []*mutex.Lock
		for i := range 3 {
			l := take(t, c, "a", mutex.Semaphore(3))
			if want := fmt.Sprint("a#", i+1); l.Name() != want {
				t.Errorf("permit %d is called %s", i+1, l.Name())
			}
			permits = append(permits, l)
		}
		_, err := c.TryLock(t.Context(), "a", mutex.Semaphore(3))
		held, ok := errors.AsType[*mutex.HeldError](err)
		if !ok || held.Kind != metadata.HoldsPermits || held.Free != 0 || held.Limit != 3 || held.Weight != 1 ||
			len(held.Holders) != 3 || held.Holder.UUID != permits[0].UUID() {
			t.Fatalf("the fourth got %+v", err)
		}
		unlock(t, permits[1])
		if again := take(t, c, "a", mutex.Semaphore(3)); again.Name() != "a#2" {
			t.Errorf("the permit that came back is given out as %s", again.Name())
		}
		take(t, c, strings.Repeat("x", 253), mutex.Semaphore(99)) // the longest name
	})
}

// A lock whose name merely looks like a share of this one does not count, and a record without a number counts as one
// permit.
func TestWhatCountsAsAPermit(t *testing.T) {
	type others struct {
		keys     map[string]string
		free     bool // for one permit of two
		freeBoth bool // for both
	}
	queues(t, map[string]others{
		"a lock with a name that begins alike": {map[string]string{"a#1st/uuid": "x", "a#1#1/uuid": "x", "a#/uuid": "x",
			"a#0/uuid": "x", "a#01/uuid": "x"}, true, true},
		"a lock with an endless number":         {map[string]string{"a#1234567890/uuid": "x"}, true, true},
		"a record by a shell":                   {map[string]string{"a#7/uuid": "x"}, true, false},
		"a record by a shell that says two":     {map[string]string{"a#7/uuid": "x", "a#7/permits": "2"}, false, false},
		"a record with a number that is none":   {map[string]string{"a#7/uuid": "x", "a#7/metadata": `{"permits":"many"}`}, false, false},
		"what is left of a record without uuid": {map[string]string{"a#1/alive": "x"}, true, true},
		"a foreign key in between":              {map[string]string{"a#1/sub/uuid": "x"}, true, true},
	}, func(t *testing.T, q *fake, c others) {
		locks := q.locks()
		uuidFirst := slices.Backward(slices.Sorted(maps.Keys(c.keys)))
		for _, key := range uuidFirst { // what is older than the uuid belongs to an earlier hold
			q.put(mutex.DefaultPrefix+key, c.keys[key])
		}
		for _, want := range []struct {
			free bool
			opts []mutex.Option
		}{{c.free, opts(mutex.Semaphore(2))}, {c.freeBoth, opts(mutex.Semaphore(2), mutex.Weight(2))},
			{c.freeBoth, opts(mutex.Exclusive())}} {
			l, err := locks.TryLock(t.Context(), "a", want.opts...)
			if (err == nil) != want.free {
				t.Errorf("free: %v, got %v", want.free, err)
			}
			l.Unlock()
		}
		q.delete(mutex.DefaultPrefix + "a#")
	})
}

// The cost of the permits that are already taken: each acquisition reads all of them.
func BenchmarkPermitBesideOthers(b *testing.B) {
	for _, others := range []int{0, 10, 100, 1000} {
		b.Run(fmt.Sprintf("%d others", others), func(b *testing.B) {
			c := newClient(b, etcdtest.Start(b).Client(b))
			for range others {
				take(b, c, "a", mutex.Semaphore(2000))
			}
			for b.Loop() {
				if err := take(b, c, "a", mutex.Semaphore(2000)).Unlock(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func TestFirstComeFirstServedAmongAllKinds(t *testing.T) {
	queue(t, func(t *testing.T, q *fake) {
		clients := []*mutex.Client{q.locks(), q.locks(), q.locks()}
		kinds := [][]mutex.Option{
			{mutex.Semaphore(3)}, {mutex.Semaphore(3), mutex.Weight(3)}, {mutex.Exclusive()},
			{mutex.Semaphore(3), mutex.Weight(2)}, {mutex.Shared()},
		}
		first := take(t, clients[0], "a", mutex.Exclusive())
		var waiters []*waiter
		for i := range 15 {
			waiters = append(waiters, q.wait(clients[i%3], kinds[i%5]...))
		}
		unlock(t, first)
		token := first.Token()
		for i, w := range waiters {
			l := q.turn(w)
			if l.Token() <= token {
				t.Errorf("turn %d: token %d after %d", i, l.Token(), token)
			}
			token = l.Token()
			unlock(t, l)
		}
	})
}

func TestWithoutQueueTakesAPermitPastTheQueue(t *testing.T) {
	queue(t, func(t *testing.T, q *fake) {
		c := q.locks()
		one := take(t, c, "a", mutex.Semaphore(2))
		heavy := q.wait(c, mutex.Semaphore(2), mutex.Weight(2))
		if _, err := c.TryLock(context.Background(), "a", mutex.Semaphore(2)); err == nil || err.Error() !=
			`semaphore "a": 1 of 2 permits free, but others queue for them; position 2 in the queue` {
			t.Errorf("in the queue: %v", err)
		}
		two := take(t, c, "a", mutex.Semaphore(2), mutex.WithoutQueue())
		got := waits(t, c, mutex.Semaphore(2), mutex.WithoutQueue())
		unlock(t, one)
		three := <-got
		unlock(t, two)
		unlock(t, three)
		unlock(t, q.turn(heavy))
	})
}

func TestOnWaitTellsWhoHasThePermits(t *testing.T) {
	queue(t, func(t *testing.T, q *fake) {
		c := q.locks()
		one := take(t, c, "a", mutex.Semaphore(2))
		two := take(t, c, "a", mutex.Semaphore(2))
		told := make(chan mutex.Waiting, 100)
		w := q.wait(c, mutex.Semaphore(2), mutex.Weight(2), mutex.OnWait(func(w mutex.Waiting) { told <- w }))
		if w := <-told; w.Lock != "a" || w.Position != 1 || len(w.Holders) != 2 || w.Holder.UUID != one.UUID() {
			t.Errorf("first told %+v", w)
		}
		unlock(t, one)
		if w := <-told; len(w.Holders) != 1 || w.Holder.UUID != two.UUID() {
			t.Errorf("then told %+v", w)
		}
		unlock(t, two)
		unlock(t, q.turn(w))
	})
}
