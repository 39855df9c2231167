package mutex_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/lockstore"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

// endHold ends a hold as an unlocker does, with the delay that its record asks for.
func endHold(t testing.TB, etcd *clientv3.Client, name, how string) {
	t.Helper()
	store := lockstore.New(etcd, layout(t))
	doc := read(t, etcd, name)
	ending := metadata.NewEnding(&doc.Record, how, "unlocker-1", "a test", time.Now())
	removal := metadata.Removal{Record: &doc.Record, Ending: ending, Delay: doc.DelayOf(0)}
	if errs := store.AutoUnlock(context.Background(), []metadata.Removal{removal}); errs[0] != nil {
		t.Fatal(errs[0])
	}
}

// delayOver lets etcd end a delay, as it does when the lease ends.
func (q *fake) delayOver(name string) {
	q.Helper()
	r, err := q.etcd.Get(context.Background(), layout(q).Delay(name))
	if err != nil || len(r.Kvs) != 1 || r.Kvs[0].Lease == 0 {
		q.Fatalf("no delay of %s with a lease: %v, %v", name, r, err)
	}
	q.revoke(clientv3.LeaseID(r.Kvs[0].Lease))
}

func TestNobodyFollowsAHoldWithinItsDelay(t *testing.T) {
	queue(t, func(t *testing.T, q *fake) {
		c := q.locks()
		former := take(t, c, "a", mutex.LockDelay(time.Hour), mutex.Purpose("the invoices"))
		if d := read(t, q.etcd, "a"); d.LockDelay != time.Hour || len(d.Problems) > 0 || len(d.Attributes) > 0 {
			t.Errorf("the record says %+v", d.Record)
		}
		waiters := []*waiter{q.wait(q.locks()), q.wait(c), q.wait(q.locks())}
		endHold(t, q.etcd, "a", metadata.EndedAutoUnlocked)

		_, err := c.TryLock(context.Background(), "a")
		held, ok := errors.AsType[*mutex.HeldError](err)
		if !ok || held.Holder.Token != 0 || held.Delay == nil || held.Delay.UUID != former.UUID() ||
			held.Delay.Purpose != "the invoices" || held.Delay.Seconds != 3600 {
			t.Fatalf("a newcomer is told %+v", err)
		}
		want := `nobody holds lock "a"; a lock delay after the hold of billing on host-1 lasts until `
		if !strings.HasPrefix(err.Error(), want) {
			t.Errorf("the error is %q, want %q and the time", err, want)
		}
		if _, err := c.TryLockAll(context.Background(), []string{"b", "a"}); !errors.Is(err, mutex.ErrHeld) {
			t.Errorf("several locks, one of them in its delay: %v", err)
		}
		for _, w := range waiters {
			select {
			case <-w.got:
				t.Fatal("a waiter got the lock within the delay")
			default:
			}
		}
		q.delayOver("a")
		last := former
		for i, w := range waiters {
			l := q.turn(w)
			if l.Token() <= last.Token() {
				t.Errorf("waiter %d has token %d after %d", i, l.Token(), last.Token())
			}
			unlock(t, l)
			last = l
		}
	})
}

func TestWaitersOfEveryKindWaitForTheDelay(t *testing.T) {
	queues(t, map[string]mutex.Option{
		"outside the queue": mutex.WithoutQueue(), "a permit": mutex.Semaphore(3), "a reader": mutex.Shared(),
		"a writer": mutex.Exclusive(),
	}, func(t *testing.T, q *fake, o mutex.Option) {
		take(t, q.locks(), "a", mutex.LockDelay(time.Hour), mutex.Exclusive())
		endHold(t, q.etcd, "a", metadata.EndedForced)
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
		endHold(t, q.etcd, "a#1", metadata.EndedAutoUnlocked)
		third := take(t, c, "a", semaphore)
		if third.Name() != "a#3" {
			t.Errorf("the third permit is %s, while #1 is in its delay", third.Name())
		}
		_, err := c.TryLock(context.Background(), "a", semaphore)
		held, ok := errors.AsType[*mutex.HeldError](err)
		if !ok || held.Free != 0 || held.Delay == nil || held.Delay.Permits != 2 || held.Delay.Lock != "a#1" {
			t.Fatalf("told %+v", err)
		}
		if text := err.Error(); !strings.Contains(text, "0 of 4 permits free") ||
			!strings.Contains(text, "a lock delay after") {
			t.Errorf("the error is %q", err)
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
		endHold(t, q.etcd, "a#1", metadata.EndedAutoUnlocked)
		if _, err := c.TryLock(context.Background(), "a", mutex.Exclusive()); !errors.Is(err, mutex.ErrHeld) ||
			!strings.HasPrefix(err.Error(), `nobody holds lock "a"; a lock delay`) {
			t.Errorf("a writer: %v", err)
		}
		reader := take(t, q.locks(), "a", mutex.Shared())
		if reader.Name() != "a#2" {
			t.Errorf("a reader has %s", reader.Name())
		}
		unlock(t, reader)
		w := q.wait(q.locks(), mutex.Exclusive())
		q.delayOver("a#1")
		unlock(t, q.turn(w))
	})
}

// What is written there does not matter, only that it is.
func TestADelayThatCannotBeRead(t *testing.T) {
	queue(t, func(t *testing.T, q *fake) {
		c := q.locks()
		for i, value := range []string{"", "x", `{"lock":"b","seconds":5}`, strings.Repeat("x", 1<<16)} {
			key := layout(t).Delay("a")
			q.put(key, value)
			_, err := c.TryLock(context.Background(), "a")
			if held, ok := errors.AsType[*mutex.HeldError](err); !ok || held.Delay == nil || !held.Delay.Unreadable {
				t.Errorf("value %d: %+v", i, err)
			}
			if want := `nobody holds lock "a"; a lock delay stands until somebody ends it`; fmt.Sprint(err) != want {
				t.Errorf("value %d: %v, want %s", i, err, want)
			}
			if _, err := c.TryLock(context.Background(), "a", mutex.Semaphore(1)); !errors.Is(err, mutex.ErrHeld) {
				t.Errorf("value %d: a permit: %v", i, err)
			}
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
