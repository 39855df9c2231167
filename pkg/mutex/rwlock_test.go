package mutex_test

import (
	"testing"

	"github.com/clustermutex/unlocker/pkg/mutex"
)

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
