package mutex_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

func TestGivingUpOnPermitsTellsTheHoldersAndThePlace(t *testing.T) {
	t.Parallel()
	lineInABubble(t, func(t *testing.T, q *line) {
		c := q.client()
		var permits []*mutex.Lock
		for i := range 5 {
			permits = append(permits, take(t, c, "a", mutex.Semaphore(5), mutex.Purpose(fmt.Sprint("job ", i)),
				mutex.AutoUnlockAfter(time.Duration(20+i)*time.Minute)))
		}
		q.wait(c, mutex.Semaphore(5)).cancel()
		etcdtest.Eventually(t, "the end of the wait", func() bool { return len(q.waiting()) == 0 })
		before := q.wait(c, mutex.Semaphore(5), mutex.Weight(2))
		waits := make(chan mutex.Waiting, 1)
		// at first, when it has its place
		w := q.wait(c, mutex.Semaphore(5), mutex.OnWait(func(w mutex.Waiting) { waits <- w }))
		<-waits
		w.cancel()
		<-w.got
		held, ok := errors.AsType[*mutex.HeldError](w.err)
		if !ok || held.Position != 2 || len(held.Holders) != 5 || held.Free != 0 ||
			!errors.Is(w.err, context.Canceled) {
			t.Fatalf("told: %+v", w.err)
		}
		want := fmt.Sprintf(`context canceled: semaphore "a": 0 of 5 permits free, 1 wanted; held by `+
			`billing on host-1 (pid %[1]d), taken just now for "job 0", `+
			`billing on host-1 (pid %[1]d), taken just now for "job 1", `+
			`billing on host-1 (pid %[1]d), taken just now for "job 2" and 2 others; `+
			`the first of them is auto-unlocked in 20 minutes; position 2 in the queue`, os.Getpid())
		if got := w.err.Error(); justNow(got) != want {
			t.Errorf("the line is\n%s, want\n%s", got, want)
		}
		for i, l := range permits {
			if held.Holders[i].UUID != l.UUID() {
				t.Errorf("holder %d is %s", i, held.Holders[i].Name)
			}
			unlock(t, l)
		}
		unlock(t, q.turn(before))
	})
}

func TestOnWaitTellsWhoHasThePermits(t *testing.T) {
	lineInABubble(t, func(t *testing.T, q *line) {
		c := q.client()
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

func TestWithoutQueueTakesAPermitPastTheQueue(t *testing.T) {
	lineInABubble(t, func(t *testing.T, q *line) {
		c := q.client()
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
