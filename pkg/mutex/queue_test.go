package mutex_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/locktxn"
	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

func TestTryLockDoesNotOvertakeTheQueue(t *testing.T) {
	queue(t, func(t *testing.T, q *fake) {
		c := q.locks()
		foreign := layout(t).Field("a", lockrecord.FieldUUID)
		q.put(foreign, "x")
		w := q.wait(c)
		if held := refused(t, q.locks(), "a"); held.Holder.UUID != "x" {
			t.Errorf("while it is held: %v", held)
		}
		w.cancel()
		<-w.got
		q.standIn() // which is slow to take its turn
		q.delete(foreign)
		if held := refused(t, c, "a"); held.Holder.Token != 0 || held.Position != 2 {
			t.Errorf("while others queue: %v", held)
		}
		take(t, c, "a", mutex.WithoutQueue())
		q.delete(layout(t).Queue("a"))
	})
}

func TestDanglingTailBlocksNoWaiter(t *testing.T) {
	queue(t, func(t *testing.T, q *fake) {
		c := q.locks()
		for _, value := range []string{foreignUUID, "", "no uuid", ".tail", strings.Repeat("x", 1<<19)} {
			for _, o := range []mutex.Option{nil, mutex.Semaphore(2)} {
				q.put(layout(t).Tail("a"), value)
				unlock(t, take(t, c, "a", o))
				wantEmpty(t, q.etcd)
				q.put(layout(t).Tail("a"), value)
				unlock(t, <-waits(t, c, o))
			}
		}
	})
}

func TestDeadWaiterBlocksTheQueueForItsLeaseAtMost(t *testing.T) {
	queue(t, func(t *testing.T, q *fake) {
		c := q.locks()
		first := take(t, c, "a")
		q.standIn() // if two took itself for the first, it would overtake one for certain
		one := q.wait(c)
		dead := q.wait(q.locks())
		two := q.wait(c)
		three := q.wait(c)
		ticket := layout(t).Ticket("a", dead.ticket.ID)
		if life := q.life(ticket); life != 10*time.Second {
			t.Errorf("a ticket outlives its waiter by %v, want 10 s", life)
		}
		q.revoke(ticket)
		etcdtest.Eventually(t, "the new position", func() bool {
			w := q.waiting()
			return len(w) == 5 && w[4].Revision > three.ticket.Revision
		})
		if again := q.waiting()[4]; again.UUID == dead.ticket.UUID || !again.Since.Equal(dead.ticket.Since.Time) {
			t.Errorf("after %+v the waiter has %+v: want another uuid, and the same beginning", dead.ticket, again)
		}
		unlock(t, first)
		time.Sleep(time.Second)
		q.revoke(layout(t).Ticket("a", foreignUUID))
		q.turns(one, two, three, dead) // who lost its place got in line again, at the end
	})
}

// A join that etcd commits after its waiter gave up leaves nothing, whether it is combined with a try, as by a client
// with a lease at hand, or sent alone, as by one that had to ask for a lease.
func TestLateJoinLeavesNothing(t *testing.T) {
	queues(t, map[string]bool{"with a lease": true, "without one": false}, lateJoinLeavesNothing)
}

func lateJoinLeavesNothing(t *testing.T, q *fake, leased bool) {
	first := take(t, q.locks(), "a")
	var late atomic.Pointer[heldTxn]
	armed := !leased
	c := newClient(t, onTxn(q.client(), func(ctx context.Context, txn *heldTxn) (*clientv3.TxnResponse, error) {
		if armed && joinsTheQueue(txn) {
			late.CompareAndSwap(nil, txn)
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return txn.send(ctx)
	}))
	giveUp := func(then func() bool) {
		end, ended := queueUp(c, 1)
		etcdtest.Eventually(t, "the join", then)
		end()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Fatalf("want the end of the context, got %v", err)
		}
	}
	if leased {
		giveUp(func() bool { return len(q.waiting()) > 0 })
		armed = true
	}
	giveUp(func() bool { return late.Load() != nil })
	if err := c.Close(); err != nil { // waits for the clean-up
		t.Fatal(err)
	}
	if _, err := late.Load().send(context.Background()); err != nil && !locktxn.IsLeaseGone(err) ||
		len(q.waiting()) > 0 {
		t.Errorf("the late join: %v; waiting: %v", err, q.waiting())
	}
	unlock(t, first)
	if r, err := late.Load().send(context.Background()); err == nil && r.Succeeded && leased {
		t.Error("the late join took the lock")
	}
}

// joinsTheQueue reports whether a transaction puts a ticket, always or if it does not take the lock.
func joinsTheQueue(txn *heldTxn) bool {
	ops := txn.elseOps
	if len(txn.cmps) == 0 {
		ops = txn.thenOps
	}
	return len(ops) > 2 && ops[0].IsGet() && ops[len(ops)-1].IsTxn()
}

// unhurried returns a client that does not retry because of a busy machine: a retry leaves a mark.
func unhurried(t testing.TB, etcd *clientv3.Client) *mutex.Client {
	t.Helper()
	return newClient(t, etcd, mutex.Options{Owner: "billing", Hostname: "host-1", AttemptTimeout: time.Minute,
		RequestTimeout: 3 * time.Minute})
}

// Each waiter waits for one release: no thundering herd, and the work does not grow with the queue.
func TestCostOfAHoldDoesNotGrowWithTheQueue(t *testing.T) {
	queues(t, map[string]int{"2 waiters": 2, "10": 10, "100": 100}, func(t *testing.T, q *fake, waiters int) {
		var clients []*mutex.Client
		for range min(waiters, 10) {
			clients = append(clients, unhurried(t, q.client()))
		}
		round := func() (requests, commits float64, order []int64) {
			first := take(t, clients[0], "a")
			began := q.sendings()
			var mu sync.Mutex
			var wg sync.WaitGroup
			for i := range waiters {
				wg.Go(func() {
					l := <-waits(t, clients[i%len(clients)])
					mu.Lock()
					order = append(order, l.Token())
					mu.Unlock()
					unlock(t, l)
				})
			}
			etcdtest.Eventually(t, "the queue", func() bool { return len(q.waiting()) == waiters })
			unlock(t, first)
			wg.Wait()
			n := float64(waiters)
			return float64(q.sendings()-began-1) / n, float64(q.put("/x", "")-first.Token()-2) / n, order
		}
		round() // the leases are there now
		requests, commits, order := round()
		if requests > 4.2 || commits > 3.001 {
			t.Errorf("%.2f requests and %.2f commits a hold", requests, commits)
		}
		if !slices.IsSorted(order) {
			t.Errorf("tokens in the order of the turns: %v", order)
		}
	})
}

// watches counts the watches that a client opens.
type watches struct {
	clientv3.Watcher
	opened *atomic.Int64
}

func (w watches) Watch(ctx context.Context, key string, opts ...clientv3.OpOption) clientv3.WatchChan {
	w.opened.Add(1)
	return w.Watcher.Watch(ctx, key, opts...)
}

// A waiter behind another client's waiter watches one key.
func TestWaiterBehindAnotherClientWatchesOneKey(t *testing.T) {
	queue(t, func(t *testing.T, q *fake) {
		first := take(t, q.locks(), "a")
		var waiters []*waiter
		var opened atomic.Int64
		for range 5 {
			etcd := q.client()
			etcd.Watcher = watches{etcd.Watcher, &opened}
			waiters = append(waiters, q.wait(newClient(t, etcd)))
		}
		unlock(t, first)
		q.turns(waiters...)
		synctest.Wait()
		if n := opened.Load(); n != 5 {
			t.Errorf("%d watches of five waiters", n)
		}
	})
}

// The ticket of a holder whose record was deleted by hand expires with the holder's lease.
func TestRecordDeletedByHandAdmitsTheNextWaiter(t *testing.T) {
	queue(t, func(t *testing.T, q *fake) {
		first := take(t, q.locks(), "a")
		one := q.wait(q.locks())
		two := q.wait(q.locks())
		unlock(t, first)
		q.turn(one)
		q.delete(layout(t).Record("a"))
		q.turns(two)
	})
}
