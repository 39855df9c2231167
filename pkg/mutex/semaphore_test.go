package mutex_test

import (
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

// A lock whose name merely looks like a share of this one does not count, and a record without a number counts as one
// permit. A plain lock is refused only by a record that says that it is a share.
func TestPermitCounting(t *testing.T) {
	type others struct {
		keys     map[string]string
		free     bool // for one permit of two
		freeBoth bool // for both
	}
	queues(t, map[string]others{
		"a lock with a name that begins alike": {map[string]string{"a#1st/uuid": "x", "a#1#1/uuid": "x", "a#/uuid": "x",
			"a#0/uuid": "x", "a#01/uuid": "x"}, true, true},
		"a lock with an endless number":     {map[string]string{"a#1234567890/uuid": "x"}, true, true},
		"a record by a shell":               {map[string]string{"a#7/uuid": "x"}, true, false},
		"a record by a shell that says two": {map[string]string{"a#7/uuid": "x", "a#7/permits": "2"}, false, false},
		"a record with a number that is none": {
			map[string]string{"a#7/uuid": "x", "a#7/metadata": `{"permits":"many"}`}, false, false},
		"a reader by a shell": {
			map[string]string{"a#7/uuid": "x", "a#7/kind": "shared"}, true, false},
		"what is left of a record without uuid": {map[string]string{"a#1/alive": "x"}, true, true},
		"a foreign key in between":              {map[string]string{"a#1/sub/uuid": "x"}, true, true},
	}, func(t *testing.T, q *fake, c others) {
		locks := q.locks()
		uuidFirst := slices.Backward(slices.Sorted(maps.Keys(c.keys)))
		for _, key := range uuidFirst { // what is older than the uuid belongs to an earlier hold
			q.put(mutex.DefaultPrefix+key, c.keys[key])
		}
		plain := c.keys["a#7/kind"] == ""
		for _, want := range []struct {
			free bool
			opts []mutex.Option
		}{{c.free, opts(mutex.Semaphore(2))}, {c.freeBoth, opts(mutex.Semaphore(2), mutex.Weight(2))},
			{c.freeBoth, opts(mutex.Exclusive())}, {plain, nil}, {plain, opts(mutex.Then(clientv3.OpPut("/x", "")))}} {
			l, err := locks.TryLock(t.Context(), "a", want.opts...)
			if (err == nil) != want.free {
				t.Errorf("free: %v, got %v", want.free, err)
			}
			l.Unlock()
		}
		q.delete(mutex.DefaultPrefix + "a#")
	})
}

func TestPlainLockWaitsForShares(t *testing.T) {
	queues(t, map[string]mutex.Option{"in the queue": nil, "outside the queue": mutex.WithoutQueue()},
		func(t *testing.T, q *fake, o mutex.Option) {
			readers := []*mutex.Lock{take(t, q.locks(), "a", mutex.Shared()), take(t, q.locks(), "a", mutex.Shared())}
			if held := refused(t, q.locks(), "a", o); len(held.Holders) != 2 || held.Kind != metadata.KindExclusive {
				t.Errorf("told %+v", held)
			}
			got := waits(t, q.locks(), o)
			for _, reader := range readers {
				synctest.Wait()
				if len(got) > 0 {
					t.Error("it got in beside a reader")
				}
				unlock(t, reader)
			}
			<-got
		})
}

func TestWithoutQueueOvertakesWaitersForPermits(t *testing.T) {
	queue(t, func(t *testing.T, q *fake) {
		c := q.locks()
		one := take(t, c, "a", mutex.Semaphore(2))
		heavy := q.wait(c, mutex.Semaphore(2), mutex.Weight(2))
		if held := refused(t, c, "a", mutex.Semaphore(2)); held.Free != 1 || held.Position != 2 {
			t.Errorf("in the queue: %v", held)
		}
		two := take(t, c, "a", mutex.Semaphore(2), mutex.WithoutQueue())
		got := waits(t, c, mutex.Semaphore(2), mutex.WithoutQueue())
		unlock(t, one)
		three := <-got
		unlock(t, two)
		unlock(t, three)
		q.turns(heavy)
	})
}

func TestOnWaitListsPermitHolders(t *testing.T) {
	queue(t, func(t *testing.T, q *fake) {
		c := q.locks()
		one := take(t, c, "a", mutex.Semaphore(2))
		two := take(t, c, "a", mutex.Semaphore(2))
		told := make(chan *mutex.HeldError, 100)
		w := q.wait(c, mutex.Semaphore(2), mutex.Weight(2), mutex.OnWait(func(w *mutex.HeldError) { told <- w }))
		if w := <-told; w.Name != "a" || w.Position != 1 || len(w.Holders) != 2 || w.Holder.UUID != one.UUID() {
			t.Errorf("first told %+v", w)
		}
		unlock(t, one)
		if w := <-told; len(w.Holders) != 1 || w.Holder.UUID != two.UUID() {
			t.Errorf("then told %+v", w)
		}
		unlock(t, two)
		q.turns(w)
	})
}

// delayOver ends a delay as etcd does when the lease expires.
func (q *fake) delayOver(name string) {
	q.Helper()
	q.revoke(layout(q).Delay(name))
}

func TestWaitersOfEveryKindRespectTheDelay(t *testing.T) {
	queues(t, map[string]mutex.Option{
		"outside the queue": mutex.WithoutQueue(), "a permit": mutex.Semaphore(3), "a reader": mutex.Shared(),
		"a writer": mutex.Exclusive(),
	}, func(t *testing.T, q *fake, o mutex.Option) {
		take(t, q.locks(), "a", mutex.LockDelay(time.Hour), mutex.Exclusive())
		endHold(t, q.etcd, "a", metadata.EndingForced, "unlocker-1", "a test")
		told := make(chan *mutex.HeldError, 100)
		got := waits(t, q.locks(), o, mutex.OnWait(func(w *mutex.HeldError) { told <- w }))
		if w := <-told; w.Delay == nil || w.Delay.Cause != metadata.EndingForced ||
			w.Holder.Token != 0 {
			t.Errorf("it waits for %+v", w)
		}
		time.Sleep(time.Second) // the delay is watched now
		q.delayOver("a")
		synctest.Wait()
		if len(got) == 0 {
			t.Error("it does not see that the delay is over")
		}
		<-got
	})
}

func TestPermitsInADelayCountAsTaken(t *testing.T) {
	queue(t, func(t *testing.T, q *fake) {
		c := q.locks()
		semaphore := mutex.Semaphore(4)
		take(t, c, "a", semaphore, mutex.Weight(2), mutex.LockDelay(time.Hour))
		take(t, c, "a", semaphore)
		endHold(t, q.etcd, "a#1", metadata.EndingAutoUnlocked, "unlocker-1", "a test")
		third := take(t, c, "a", semaphore)
		if third.Name() != "a#3" {
			t.Errorf("the third permit is %s, while #1 is in its delay", third.Name())
		}
		if held := refused(t, c, "a", semaphore); held.Kind != metadata.KindSemaphore || held.Free != 0 ||
			held.Limit != 4 || held.Weight != 1 || len(held.Holders) != 2 ||
			held.Holder.Token != held.Holders[0].Token || held.Delay == nil || held.Delay.Permits != 2 ||
			held.Delay.Name != "a#1" {
			t.Errorf("told %+v", held)
		}
		w := q.wait(q.locks(), semaphore, mutex.Weight(2))
		q.delayOver("a#1")
		synctest.Wait() // for its turn, which comes with the end of the delay
		if len(w.got) == 0 {
			t.Error("the waiter does not see that the delay is over")
		}
		l := q.turn(w)
		if l.Name() != "a#1" {
			t.Errorf("then %s", l.Name())
		}
		unlock(t, l)
	})
}

func TestReadersDelayBlocksWritersNotReaders(t *testing.T) {
	queue(t, func(t *testing.T, q *fake) {
		c := q.locks()
		take(t, c, "a", mutex.Shared(), mutex.LockDelay(time.Hour))
		endHold(t, q.etcd, "a#1", metadata.EndingAutoUnlocked, "unlocker-1", "a test")
		if held := refused(t, c, "a", mutex.Exclusive()); held.Delay == nil || held.Holder.Token != 0 {
			t.Errorf("a writer got %v", held)
		}
		reader := take(t, q.locks(), "a", mutex.Shared())
		if reader.Name() != "a#2" {
			t.Errorf("a reader has %s", reader.Name())
		}
		unlock(t, reader)
		w := q.wait(q.locks(), mutex.Exclusive())
		q.delayOver("a#1")
		q.turns(w)
	})
}

func TestLockWithoutADelay(t *testing.T) {
	queue(t, func(t *testing.T, q *fake) {
		c := q.locks()
		for want, o := range map[time.Duration]mutex.Option{time.Minute: nil, 0: mutex.LockDelay(0),
			time.Second: mutex.LockDelay(time.Second)} {
			l := take(t, c, "a", o)
			doc := read(t, q.etcd, "a")
			if got := doc.EffectiveLockDelay(time.Minute); got != want {
				t.Errorf("where the default is a minute: %v, want %v", got, want)
			}
			unlock(t, l)
		}
	})
}
