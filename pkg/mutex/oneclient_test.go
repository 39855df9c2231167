package mutex_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// watched returns how many watches were opened since the last call.
func watched(spies ...<-chan string) (n int) {
	synctest.Wait()
	for _, opened := range spies {
		for len(opened) > 0 {
			<-opened
			n++
		}
	}
	return n
}

// A waiter behind one of another client watches one key.
func TestWaiterBehindAnotherClientWatchesOneKey(t *testing.T) {
	lineInABubble(t, func(t *testing.T, q *line) {
		first := take(t, q.client(), "a")
		var waiters []*waiter
		var spies []<-chan string
		for range 5 {
			etcd := q.connect(t)
			spies = append(spies, spyOnWatches(etcd))
			waiters = append(waiters, q.wait(newClient(t, etcd)))
		}
		q.unlock(first)
		for _, w := range waiters {
			q.unlock(q.turn(w))
		}
		if n := watched(spies...); n != 5 {
			t.Errorf("%d watches of five waiters", n)
		}
	})
}

// One that waits behind another of its client goes on when that one gives up, loses its lease, or loses its ticket to
// somebody else, and stays behind those before.
func TestWaiterBehindOneOfItsOwnClientOutlivesIt(t *testing.T) {
	for name, end := range map[string]func(q *line, w *waiter){
		"gives up":           func(_ *line, w *waiter) { w.cancel() },
		"loses its lease":    func(q *line, w *waiter) { _, _ = q.etcd.Revoke(context.Background(), q.leaseOf(w)) },
		"is taken out of it": func(q *line, w *waiter) { q.delete(layout(q).Ticket("a", w.ticket.ID)) },
	} {
		for kind, opts := range kindsThatQueue() {
			t.Run(name+", "+kind, func(t *testing.T) {
				lineInABubble(t, func(t *testing.T, q *line) {
					first := take(t, q.client(), "a", opts[0]...)
					one := q.wait(q.client(), opts[0]...)
					c := q.client()
					two := q.wait(c, opts[0]...)
					three := q.wait(c, opts[0]...)
					end(q, two)
					time.Sleep(time.Minute)
					q.noTurn(three)
					q.unlock(first)
					q.unlock(q.turn(one))
					began := time.Now()
					q.unlock(q.turn(three))
					if d := time.Since(began); d > time.Second {
						t.Errorf("it got its turn after %v", d)
					}
					// Whoever lost its ticket waits again, behind the third, and may have the lock by now.
					two.cancel()
					if l := <-two.got; l != nil {
						q.unlock(l)
					}
				})
			})
		}
	}
}

// A hold that was got by waiting is lost while another of the same client waits behind it.
func TestWaiterBehindALostHoldOfItsOwnClientGetsItsTurn(t *testing.T) {
	lineInABubble(t, func(t *testing.T, q *line) {
		first := take(t, q.client(), "a")
		c := q.client()
		one := q.wait(c)
		two := q.wait(c)
		q.unlock(first)
		l := q.turn(one)
		time.Sleep(time.Second)
		removeWith(t, q.etcd, "auto-unlocked", "u1", "deadline passed")
		<-l.Lost()
		began := time.Now()
		q.unlock(q.turn(two))
		if d := time.Since(began); d > time.Second {
			t.Errorf("it got its turn after %v", d)
		}
	})
}

// Many hand-overs between two that wait for each other again and again.
func TestHandOversBetweenTwoOfOneClient(t *testing.T) {
	lineInABubble(t, func(t *testing.T, q *line) {
		c := q.client()
		var inside, turns atomic.Int64
		done := make(chan error)
		for range 2 {
			go func() {
				for range 200 {
					err := c.Do(context.Background(), "a", func(context.Context) error {
						if inside.Add(1) != 1 {
							t.Error("two hold the lock")
						}
						turns.Add(1)
						time.Sleep(time.Millisecond)
						inside.Add(-1)
						return nil
					})
					if err != nil {
						done <- err
						return
					}
				}
				done <- nil
			}()
		}
		for range 2 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		if turns.Load() != 400 {
			t.Errorf("%d turns", turns.Load())
		}
	})
}
