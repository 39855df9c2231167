package mutex_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/mutex"
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

// Those who wait behind another waiter of the same client need no watch, and no look at the queue: the first watches
// the hold, which was not got by waiting.
func TestWaiterBehindOneOfItsOwnClientAsksNobody(t *testing.T) {
	lineInABubble(t, func(t *testing.T, q *line) {
		first := take(t, q.client(), "a")
		etcd := q.connect(t)
		var requests atomic.Int64
		etcd.KV = &counting{KV: etcd.KV, n: &requests}
		opened := spyOnWatches(etcd)
		c := newClient(t, etcd)
		var waiters []*waiter
		for range 5 {
			waiters = append(waiters, q.wait(c))
		}
		if n := watched(opened); n != 1 {
			t.Errorf("%d watches of five waiters", n)
		}
		before := requests.Load()
		q.unlock(first)
		for _, w := range waiters {
			q.unlock(q.turn(w))
		}
		if n := requests.Load() - before; n != 2*5 {
			t.Errorf("%d requests for five turns and releases", n)
		}
		if n := watched(opened); n != 0 {
			t.Errorf("%d watches of five turns", n)
		}
	})
}

// Whoever comes when one of its own client waits already joins with its ticket alone, and still names the holder.
func TestBehindOneOfItsOwnClientNoRecordIsSentToJoin(t *testing.T) {
	lineInABubble(t, func(t *testing.T, q *line) {
		first := take(t, q.client(), "a")
		etcd := q.connect(t)
		var records atomic.Int64
		etcd.KV = &txns{KV: etcd.KV, commit: func(ctx context.Context, txn *heldTxn) (*clientv3.TxnResponse, error) {
			if txn.writes(layout(t).Field("a", metadata.FieldUUID)) {
				records.Add(1)
			}
			return txn.send(ctx)
		}}
		c := newClient(t, etcd)
		one := q.wait(c)
		before := records.Load()
		two := q.wait(c)
		if n := records.Load() - before; before == 0 || n != 0 {
			t.Errorf("%d records were sent by the first waiter, %d by the second", before, n)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := c.Lock(ctx, "a")
		if held, ok := errors.AsType[*mutex.HeldError](err); !ok || held.Holder.UUID != first.UUID() {
			t.Errorf("the third gave up with %v", err)
		}
		q.unlock(first)
		q.unlock(q.turn(one))
		q.unlock(q.turn(two))
	})
}

// What a client knows of its own waiters may be out of date: then a newcomer that joins finds the lock free at once.
func TestBehindOneOfItsOwnClientThatIsGoneTheLockIsTaken(t *testing.T) {
	lineInABubble(t, func(t *testing.T, q *line) {
		first := take(t, q.client(), "a")
		c := q.client()
		one := q.wait(c)
		q.delete(layout(t).Queue("a")) // the waiter finds out when it looks next
		q.unlock(first)
		began := time.Now()
		l := take(t, c, "a")
		if d := time.Since(began); d > time.Second {
			t.Errorf("it got the lock after %v", d)
		}
		q.unlock(l)
		q.unlock(q.turn(one))
	})
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

// Many more hand-overs than a client remembers, between two that wait for each other again and again.
func TestHandOversBetweenTwoOfOneClient(t *testing.T) {
	lineInABubble(t, func(t *testing.T, q *line) {
		etcd := q.connect(t)
		opened := spyOnWatches(etcd)
		c := newClient(t, etcd)
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
		if n := watched(opened); turns.Load() != 400 || n > 4 {
			t.Errorf("%d turns with %d watches", turns.Load(), n)
		}
	})
}

// answering sends a transaction as it is.
type answering func() (*clientv3.TxnResponse, error)

// sending sends one transaction, or what a test makes of it.
type sending func(ctx context.Context, send answering) (*clientv3.TxnResponse, error)

// through returns a client of the line's etcd, whose releases and turns go through these functions.
func (q *line) through(release, turn sending) *mutex.Client {
	etcd := q.connect(q.TB)
	record := layout(q).Record("a")
	etcd.KV = &txns{KV: etcd.KV, commit: func(ctx context.Context, txn *heldTxn) (*clientv3.TxnResponse, error) {
		send := func() (*clientv3.TxnResponse, error) { return txn.send(ctx) }
		switch {
		case len(txn.thenOps) > 0 && txn.thenOps[0].IsDelete() && string(txn.thenOps[0].KeyBytes()) == record:
			return release(ctx, send)
		case txn.writes(layout(q).Field("a", metadata.FieldUUID)):
			return turn(ctx, send)
		}
		return send()
	}}
	return newClient(q, etcd)
}

// The turn of the next waiter follows a release of the same client without waiting for its answer.
func TestTurnBehindOneOfItsOwnClientFollowsTheRelease(t *testing.T) {
	lineInABubble(t, func(t *testing.T, q *line) {
		slow := func(_ context.Context, send answering) (*clientv3.TxnResponse, error) {
			r, err := send()
			time.Sleep(100 * time.Millisecond)
			return r, err
		}
		first := take(t, q.client(), "a")
		c := q.through(slow, slow)
		one := q.wait(c)
		two := q.wait(c)
		q.unlock(first)
		l := q.turn(one)
		began := time.Now()
		go q.unlock(l)
		next := q.turn(two)
		if d := time.Since(began); d > 150*time.Millisecond {
			t.Errorf("it got the lock after %v", d)
		}
		q.unlock(next)
	})
}

// A turn that arrives before the release is refused, and comes again after the answer. Those that follow wait longer,
// so that few are sent in vain.
func TestTurnThatOvertakesTheReleaseComesAgain(t *testing.T) {
	lineInABubble(t, func(t *testing.T, q *line) {
		var turns, refused atomic.Int64
		c := q.through(func(_ context.Context, send answering) (*clientv3.TxnResponse, error) {
			time.Sleep(10 * time.Millisecond)
			r, err := send()
			time.Sleep(30 * time.Millisecond)
			return r, err
		}, func(_ context.Context, send answering) (*clientv3.TxnResponse, error) {
			turns.Add(1)
			r, err := send()
			if err == nil && !r.Succeeded {
				refused.Add(1)
			}
			return r, err
		})
		first := take(t, q.client(), "a")
		waiters := []*waiter{q.wait(c), q.wait(c)}
		q.unlock(first)
		for range 50 {
			l := q.turn(waiters[0])
			waiters = append(waiters[1:], q.wait(c))
			q.unlock(l)
		}
		for _, w := range waiters {
			q.unlock(q.turn(w))
		}
		if turns.Load() < 50 || refused.Load() < 5 || refused.Load() > 10 {
			t.Errorf("%d turns were sent, %d of them refused", turns.Load(), refused.Load())
		}
	})
}

// A release of which only the answer is lost has been followed by the turn: it is still no loss.
func TestTurnFollowsAReleaseWhoseAnswerIsLost(t *testing.T) {
	lineInABubble(t, func(t *testing.T, q *line) {
		lost := true
		c := q.through(func(ctx context.Context, send answering) (*clientv3.TxnResponse, error) {
			r, err := send()
			if lost {
				lost = false
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return r, err
		}, func(_ context.Context, send answering) (*clientv3.TxnResponse, error) {
			return send()
		})
		first := take(t, q.client(), "a")
		one := q.wait(c)
		two := q.wait(c)
		q.unlock(first)
		l := q.turn(one)
		released := make(chan error)
		began := time.Now()
		go func() { released <- l.Unlock() }()
		next := q.turn(two)
		if d := time.Since(began); d > time.Second {
			t.Errorf("it got the lock after %v", d)
		}
		if err := <-released; err != nil {
			t.Error(err)
		}
		q.unlock(next)
	})
}
