package mutex_test

import (
	"context"
	"testing"

	"github.com/clustermutex/unlocker/pkg/mutex"
)

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
