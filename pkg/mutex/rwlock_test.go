package mutex_test

import (
	"context"
	"errors"
	"strings"
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

func TestReadersBehindAWriterComeAfterIt(t *testing.T) {
	lineInABubble(t, func(t *testing.T, q *line) {
		c := q.client()
		first := take(t, c, "a", mutex.Shared())
		writer := q.wait(c, mutex.Exclusive())
		readers := []*waiter{q.wait(c, mutex.Shared()), q.wait(c, mutex.Shared())}
		_, err := c.TryLock(context.Background(), "a", mutex.Shared())
		held, ok := errors.AsType[*mutex.HeldError](err)
		if !ok || held.Position != 4 ||
			!strings.HasSuffix(err.Error(), ", but others queue for it; position 4 in the queue") {
			t.Errorf("a reader that does not wait got %v", err)
		}
		unlock(t, first)
		l := q.turn(writer)
		last := q.wait(c, mutex.Exclusive())
		unlock(t, l)
		reading := []*mutex.Lock{q.turn(readers[0]), q.turn(readers[1])} // both at once
		for _, l := range reading {
			unlock(t, l)
		}
		unlock(t, q.turn(last))
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
