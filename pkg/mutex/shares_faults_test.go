package mutex_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/locktxn"
	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

// delaying holds back the first matching transaction until release is called, and fails its retries.
type delaying struct {
	fits  func(*heldTxn) bool
	late  atomic.Pointer[heldTxn]
	again atomic.Bool // repetitions are let through
}

func (d *delaying) commit(ctx context.Context, txn *heldTxn) (*clientv3.TxnResponse, error) {
	if d.fits(txn) && (d.late.CompareAndSwap(nil, txn) || !d.again.Load()) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return txn.send(ctx)
}

// claims reports whether a transaction takes a share.
func claims(txn *heldTxn) bool {
	for _, c := range txn.cmps {
		if c := c.GetCompare(); string(c.Key) == mutex.DefaultPrefix+"a#1/uuid" && c.Target == pb.Compare_CREATE {
			return true
		}
	}
	return false
}

// A claim that is committed after its client gave up, or after the release of its hold, takes and leaves nothing.
func TestLateClaimOfAShareLeavesNothing(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		queued bool // the claim is that of the first in the queue
		again  bool // and its repetition gets through
	}{
		{"given up", false, false},
		{"held and given back", false, true},
		{"given up at the head of the queue", true, false},
		{"held and given back at the head of the queue", true, true},
	} {
		for name, o := range map[string]mutex.Option{"permit": mutex.Semaphore(3), "reader": mutex.Shared()} {
			t.Run(name+" "+c.name, func(t *testing.T) {
				lineInABubble(t, func(t *testing.T, q *line) {
					etcd := q.connect(t)
					armed := atomic.Bool{}
					armed.Store(!c.queued)
					d := &delaying{fits: func(txn *heldTxn) bool { return armed.Load() && claims(txn) }}
					d.again.Store(c.again)
					etcd.KV = &txns{KV: etcd.KV, commit: d.commit}
					locks, err := mutex.New(etcd, mutex.Options{AttemptTimeout: 200 * time.Millisecond})
					if err != nil {
						t.Fatal(err)
					}
					ctx, cancel := context.WithCancel(context.Background())
					defer cancel()
					var writer *mutex.Lock
					if c.queued {
						writer = take(t, q.client(), "a", mutex.Exclusive())
					}
					got := make(chan error, 1)
					go func() {
						l, err := locks.Lock(ctx, "a", o)
						if err == nil {
							err = l.Unlock()
						}
						got <- err
					}()
					if c.queued {
						etcdtest.Eventually(t, "the ticket", func() bool { return len(q.waiting()) == 1 })
						armed.Store(true)
						q.unlock(writer)
					}
					etcdtest.Eventually(t, "the claim", func() bool { return d.late.Load() != nil })
					if !c.again {
						cancel()
					}
					if err := <-got; (err == nil) != c.again {
						t.Fatal(err)
					}
					if err := locks.Close(); err != nil { // waits for the clean-up
						t.Fatal(err)
					}
					if r, err := d.late.Load().send(context.Background()); err != nil || r.Succeeded {
						t.Errorf("the late claim: %v, %v", r, err)
					}
					if h := history(t, q.etcd, "a", false); len(h.holds) > 0 {
						t.Errorf("left: %v", h.holds)
					}
				})
			})
		}
	}
}

// A client whose join got no answer may be in the queue twice. It starts over, and its earlier place disappears.
func TestLateJoinForAShareLeavesNothing(t *testing.T) {
	lineInABubble(t, func(t *testing.T, q *line) {
		writer := take(t, q.client(), "a", mutex.Exclusive())
		etcd := q.connect(t)
		d := &delaying{fits: func(txn *heldTxn) bool {
			return len(txn.cmps) == 0 && len(txn.thenOps) == 4 &&
				txn.thenOps[3].IsTxn()
		}}
		etcd.KV = &txns{KV: etcd.KV, commit: d.commit}
		locks := newClient(t, etcd)
		ctx := untilThen(t, func() bool { return d.late.Load() != nil })
		_, err := locks.Lock(ctx, "a", mutex.Shared())
		held, ok := errors.AsType[*mutex.HeldError](err)
		if !ok || !errors.Is(err, context.Canceled) || held.Holder.UUID != writer.UUID() {
			t.Fatalf("want the holder and the end of the context, got %v", err)
		}
		if err := locks.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := d.late.Load().send(context.Background()); err != nil && !locktxn.LeaseGone(err) ||
			len(q.waiting()) > 0 {
			t.Errorf("the late join: %v; waiting: %v", err, q.waiting())
		}
		q.unlock(writer)
	})
}

func TestDeadWaiterAtTheHeadCostsItsLeaseAtMost(t *testing.T) {
	t.Parallel()
	lineInABubble(t, func(t *testing.T, q *line) {
		c := q.client()
		first := take(t, c, "a", mutex.Semaphore(2), mutex.Weight(2))
		dead := q.wait(q.client(), mutex.Semaphore(2))
		two := q.wait(c, mutex.Semaphore(2))
		three := q.wait(c, mutex.Shared())
		if _, err := q.etcd.Revoke(context.Background(), q.leaseOf(dead)); err != nil {
			t.Fatal(err)
		}
		etcdtest.Eventually(t, "the new position", func() bool {
			w := q.waiting()
			return len(w) == 3 &&
				w[2].Revision > three.ticket.Revision
		})
		q.unlock(first)
		q.unlock(q.turn(two))
		q.unlock(q.turn(three))
		q.unlock(q.turn(dead))
		history(t, q.etcd, "a", false)
	})
}

// removeRecord ends the hold of a record as an unlocker or a person does.
func removeRecord(t testing.TB, etcd *clientv3.Client, name, ended, by, why string) {
	t.Helper()
	doc := read(t, etcd, name)
	lease, err := etcd.Grant(context.Background(), 60)
	if err != nil {
		t.Fatal(err)
	}
	r, err := locktxn.AutoUnlock(layout(t), &locktxn.Removal{
		Removal: metadata.Removal{Record: &doc.Record, Ending: metadata.NewEnding(&doc.Record, ended, by, why,
			time.Now())}, Lease: lease.ID,
	}).Commit(context.Background(), etcd)
	if err != nil || !r.Succeeded {
		t.Fatal(err, r)
	}
}

func TestPermitThatIsTakenAwayGoesToTheFirstInTheQueue(t *testing.T) {
	lineInABubble(t, func(t *testing.T, q *line) {
		c := q.client()
		dead := take(t, c, "a", mutex.Semaphore(2))
		other := take(t, c, "a", mutex.Semaphore(2))
		one := q.wait(c, mutex.Semaphore(2))
		two := q.wait(c, mutex.Semaphore(2))
		removeRecord(t, q.etcd, "a#1", metadata.EndedAutoUnlocked, "u1", "deadline passed")
		l := q.turn(one)
		if l.Name() != "a#1" {
			t.Errorf("it got %s", l.Name())
		}
		<-dead.Lost()
		lost, ok := context.Cause(dead.Context()).(*mutex.LostError)
		if !ok || lost.Lock != "a#1" || lost.Ending == nil || lost.Ending.By != "u1" {
			t.Errorf("the former holder's cause is %v", context.Cause(dead.Context()))
		}
		if err := dead.Unlock(); !errors.Is(err, mutex.ErrNotHeld) {
			t.Errorf("unlock of the lost permit: %v", err)
		}
		q.unlock(other)
		q.unlock(q.turn(two))
		q.unlock(l)
		history(t, q.etcd, "a", false)
	})
}

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
			q.unlock(l)
		}
		q.unlock(q.turn(before))
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
		q.unlock(one)
		if w := <-told; len(w.Holders) != 1 || w.Holder.UUID != two.UUID() {
			t.Errorf("then told %+v", w)
		}
		q.unlock(two)
		q.unlock(q.turn(w))
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
		got := make(chan *mutex.Lock)
		go func() {
			l, err := c.Lock(context.Background(), "a", mutex.Semaphore(2), mutex.WithoutQueue())
			if err != nil {
				t.Error(err)
			}
			got <- l
		}()
		q.unlock(one)
		three := <-got
		q.unlock(two)
		q.unlock(three)
		q.unlock(q.turn(heavy))
		history(t, q.etcd, "a", true)
	})
}

// A reader whose turn has come hangs before its claim arrives, and loses its place meanwhile. By then the claim is too
// late: a writer waits.
func TestClaimOfALostPlaceIsRefused(t *testing.T) {
	t.Parallel()
	lineInABubble(t, func(t *testing.T, q *line) {
		etcd := q.connect(t)
		reached := make(chan struct{})
		goOn := make(chan struct{})
		var armed atomic.Bool
		etcd.KV = &txns{KV: etcd.KV, commit: func(ctx context.Context, txn *heldTxn) (*clientv3.TxnResponse, error) {
			if claims(txn) && armed.CompareAndSwap(true, false) {
				close(reached)
				<-goOn
			}
			return txn.send(ctx)
		}}
		slow, err := mutex.New(etcd, mutex.Options{AttemptTimeout: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		c := q.client()
		first := take(t, c, "a", mutex.Exclusive())
		late := q.wait(slow, mutex.Shared())
		two := q.wait(c, mutex.Shared())
		armed.Store(true)
		q.unlock(first)
		<-reached
		if _, err := q.etcd.Revoke(context.Background(), q.leaseOf(late)); err != nil {
			t.Fatal(err)
		}
		reading := q.turn(two)
		other := take(t, c, "a", mutex.Shared())
		writer := q.wait(c, mutex.Exclusive())
		q.unlock(reading) // now the share that the late claim names is free again
		close(goOn)
		etcdtest.Eventually(t, "the new position", func() bool { return len(q.waiting()) == 2 })
		q.unlock(other)
		q.unlock(q.turn(writer))
		q.unlock(q.turn(late))
		if err := slow.Close(); err != nil {
			t.Error(err)
		}
		history(t, q.etcd, "a", false)
	})
}
