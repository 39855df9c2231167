package mutex_test

import (
	"context"
	"errors"
	"testing"

	"github.com/clustermutex/unlocker/pkg/mutex"
)

func TestReadersShareAndAWriterIsAlone(t *testing.T) {
	lineInABubble(t, func(t *testing.T, q *line) {
		c := q.client()
		one := take(t, c, "a", mutex.Shared(), mutex.Purpose("read one"))
		two := take(t, q.client(), "a", mutex.Shared())
		if one.Name() != "a#1" || two.Name() != "a#2" {
			t.Errorf("the readers are %s and %s", one.Name(), two.Name())
		}
		_, err := c.TryLock(context.Background(), "a", mutex.Exclusive())
		if held, ok := errors.AsType[*mutex.HeldError](err); !ok || len(held.Holders) != 2 ||
			held.Holder.UUID != one.UUID() {
			t.Fatalf("the writer got %v", err)
		}
		unlock(t, one)
		unlock(t, two)
		writer := take(t, c, "a", mutex.Exclusive())
		for _, o := range []mutex.Option{mutex.Shared(), mutex.Exclusive(), mutex.Semaphore(5)} {
			if _, err := c.TryLock(context.Background(), "a", o); err == nil {
				t.Error("taken beside a writer")
			}
		}
		unlock(t, writer)
	})
}

func TestFirstComeFirstServedAmongAllKinds(t *testing.T) {
	lineInABubble(t, func(t *testing.T, q *line) {
		clients := []*mutex.Client{q.client(), q.client(), q.client()}
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
