package mutex_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

// delayOver lets etcd end a delay, as it does when the lease ends.
func (q *fake) delayOver(name string) {
	q.Helper()
	q.revoke(layout(q).Delay(name))
}

func TestNobodyFollowsAHoldWithinItsDelay(t *testing.T) {
	queue(t, func(t *testing.T, q *fake) {
		c := q.locks()
		former := take(t, c, "a", mutex.LockDelay(time.Hour), mutex.Purpose("the invoices"))
		if d := read(t, q.etcd, "a"); d.LockDelay != time.Hour || len(d.Problems) > 0 || len(d.Attributes) > 0 {
			t.Errorf("the record says %+v", d.Record)
		}
		waiters := []*waiter{q.wait(q.locks()), q.wait(c), q.wait(q.locks())}
		endHold(t, q.etcd, "a", metadata.EndedAutoUnlocked, "unlocker-1", "a test")

		if held := refused(t, c, "a"); held.Holder.Token != 0 || held.Delay == nil ||
			held.Delay.UUID != former.UUID() || held.Delay.Purpose != "the invoices" || held.Delay.Seconds != 3600 {
			t.Errorf("a newcomer is told %+v", held)
		}
		if _, err := c.TryLockAll(context.Background(), []string{"b", "a"}); !errors.Is(err, mutex.ErrHeld) {
			t.Errorf("several locks, one of them in its delay: %v", err)
		}
		time.Sleep(time.Minute)
		for _, w := range waiters {
			if len(w.got) > 0 {
				t.Fatal("a waiter got the lock within the delay")
			}
		}
		q.delayOver("a")
		q.turns(waiters...)
	})
}

func TestWaitersOfEveryKindWaitForTheDelay(t *testing.T) {
	queues(t, map[string]mutex.Option{
		"outside the queue": mutex.WithoutQueue(), "a permit": mutex.Semaphore(3), "a reader": mutex.Shared(),
		"a writer": mutex.Exclusive(),
	}, func(t *testing.T, q *fake, o mutex.Option) {
		take(t, q.locks(), "a", mutex.LockDelay(time.Hour), mutex.Exclusive())
		endHold(t, q.etcd, "a", metadata.EndedForced, "unlocker-1", "a test")
		told := make(chan mutex.Waiting, 100)
		got := waits(t, q.locks(), o, mutex.OnWait(func(w mutex.Waiting) { told <- w }))
		if w := <-told; w.Since.IsZero() || w.Delay == nil || w.Delay.Ended != metadata.EndedForced ||
			w.Holder.Token != 0 {
			t.Errorf("it waits for %+v", w)
		}
		q.delayOver("a")
		<-got
	})
}

func TestPermitsInTheirDelayAreTaken(t *testing.T) {
	queue(t, func(t *testing.T, q *fake) {
		c := q.locks()
		semaphore := mutex.Semaphore(4)
		take(t, c, "a", semaphore, mutex.Weight(2), mutex.LockDelay(time.Hour))
		take(t, c, "a", semaphore)
		endHold(t, q.etcd, "a#1", metadata.EndedAutoUnlocked, "unlocker-1", "a test")
		third := take(t, c, "a", semaphore)
		if third.Name() != "a#3" {
			t.Errorf("the third permit is %s, while #1 is in its delay", third.Name())
		}
		if held := refused(t, c, "a", semaphore); held.Free != 0 || held.Delay == nil || held.Delay.Permits != 2 ||
			held.Delay.Lock != "a#1" {
			t.Errorf("told %+v", held)
		}
		w := q.wait(q.locks(), semaphore, mutex.Weight(2))
		q.delayOver("a#1")
		l := q.turn(w)
		if l.Name() != "a#1" {
			t.Errorf("then %s", l.Name())
		}
		unlock(t, l)
	})
}

func TestADelayOfAReaderKeepsWritersBackAndNoReaders(t *testing.T) {
	queue(t, func(t *testing.T, q *fake) {
		c := q.locks()
		take(t, c, "a", mutex.Shared(), mutex.LockDelay(time.Hour))
		endHold(t, q.etcd, "a#1", metadata.EndedAutoUnlocked, "unlocker-1", "a test")
		if held := refused(t, c, "a", mutex.Exclusive()); held.Delay == nil || held.Holder.Token != 0 {
			t.Errorf("a writer is told %v", held)
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

// What is written there does not matter, only that it is.
func TestADelayThatCannotBeRead(t *testing.T) {
	queue(t, func(t *testing.T, q *fake) {
		c := q.locks()
		for i, value := range []string{"", "x", `{"lock":"b","seconds":5}`, strings.Repeat("x", 1<<16)} {
			key := layout(t).Delay("a")
			q.put(key, value)
			if held := refused(t, c, "a"); held.Delay == nil || !held.Delay.Unreadable {
				t.Errorf("value %d: %+v", i, held)
			}
			refused(t, c, "a", mutex.Semaphore(1))
			q.delete(key)
			unlock(t, take(t, c, "a"))
		}
	})
}

func TestALockThatWantsNoDelay(t *testing.T) {
	type wish struct {
		option mutex.Option
		want   time.Duration
	}
	queues(t, map[string]wish{"no wish": {nil, time.Minute}, "none": {mutex.LockDelay(0), 0},
		"its own": {mutex.LockDelay(time.Second), time.Second}}, func(t *testing.T, q *fake, c wish) {
		take(t, q.locks(), "a", c.option) // whose release leaves no delay
		doc := read(t, q.etcd, "a")
		if got := doc.DelayOf(time.Minute); got != c.want {
			t.Errorf("where the default is a minute: %v, want %v", got, c.want)
		}
	})
}
