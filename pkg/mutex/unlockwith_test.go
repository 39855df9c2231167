package mutex_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/locktxn"
	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

func TestUnlockWithWritesIsBothOrNothing(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Shared(t).Client(t)
	watches := spyOnWatches(etcd)
	locks := newClient(t, etcd)
	l := take(t, locks, "a", mutex.Heartbeat(time.Hour))
	<-watches // that see the record go
	etcdtest.Put(t, etcd, "/state", "broken")

	ready := clientv3.Compare(clientv3.Value("/state"), "=", "ready")
	done := []clientv3.Op{clientv3.OpPut("/state", "done"), clientv3.OpPut("/result", "42")}
	err := l.UnlockWith(done, ready)
	if failed, _ := errors.AsType[*mutex.ConditionError](err); failed == nil || !strings.Contains(err.Error(),
		`key "/state" is "broken"`) {
		t.Fatalf("got %v", err)
	}
	if result, _ := value(t, etcd, "/result"); result != "" || l.Context().Err() != nil ||
		read(t, etcd, "a").UUID != l.UUID() {
		t.Errorf("the condition did not hold, but the result is %q, the context %v", result, context.Cause(l.Context()))
	}
	etcdtest.Put(t, etcd, "/state", "ready")
	if err := l.UnlockWith(done, ready); err != nil {
		t.Fatal(err)
	}
	if result, _ := value(t, etcd, "/result"); result != "42" || read(t, etcd, "a").Token != 0 {
		t.Errorf("the result is %q, the lock is held by %s", result, read(t, etcd, "a").UUID)
	}
	if cause := context.Cause(l.Context()); cause != mutex.ErrUnlocked {
		t.Errorf("the context ended with %v", cause)
	}
	if err := l.Unlock(); err != nil {
		t.Errorf("unlock afterwards: %v", err)
	}
	if err := l.UnlockWith(done); err != mutex.ErrUnlocked {
		t.Errorf("a second time: %v", err)
	}
}

// The watch hears of the release before the caller does.
func TestReleaseIsNoLossToTheWatch(t *testing.T) {
	queue(t, func(t *testing.T, q *fake) {
		etcd := q.client()
		etcd.KV = &txns{KV: etcd.KV, commit: func(ctx context.Context, txn *heldTxn) (*clientv3.TxnResponse, error) {
			r, err := txn.send(ctx)
			if txn.writes("/x") {
				time.Sleep(time.Second)
			}
			return r, err
		}}
		l := take(t, newClient(t, etcd), "a")
		time.Sleep(time.Second) // it is watched now
		if err := l.UnlockWith([]clientv3.Op{clientv3.OpPut("/x", "")}); err != nil {
			t.Fatal(err)
		}
		if cause := context.Cause(l.Context()); cause != mutex.ErrUnlocked {
			t.Fatalf("the context ended with %v", cause)
		}
	})
}

func TestUnlockWithWritesWhoseAnswerIsLostIsDoneOnce(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, meanwhile string }{{"nobody wrote since", ""},
		{"somebody wrote since", "again"}} {
		t.Run(c.name, func(t *testing.T) {
			etcd := etcdtest.Shared(t).Client(t)
			other := etcd.KV
			var sent atomic.Int32
			etcd.KV = &txns{KV: etcd.KV,
				commit: func(ctx context.Context, txn *heldTxn) (*clientv3.TxnResponse, error) {
					r, err := txn.send(ctx)
					if txn.writes("/state") && sent.Add(1) == 1 {
						if c.meanwhile != "" {
							other.Put(ctx, "/state", c.meanwhile)
						}
						return nil, context.DeadlineExceeded
					}
					return r, err
				}}
			locks := newClient(t, etcd)
			l := take(t, locks, "a")
			if err := l.UnlockWith([]clientv3.Op{clientv3.OpPut("/state", "done")}); err != nil {
				t.Errorf("it was done, but the error is %v", err)
			}
			if state, _ := value(t, etcd, "/state"); c.meanwhile != "" && state != c.meanwhile {
				t.Errorf("the state is %q: it was written twice", state)
			}
		})
	}
}

// Without its mark, an unlock whose first answer was lost would look like a removal by somebody else.
func TestUnlockWithWritesThatSomebodyForestalledIsALoss(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Shared(t).Client(t)
	kv := etcd.KV
	var sent atomic.Int32
	etcd.KV = &txns{KV: etcd.KV, commit: func(ctx context.Context, txn *heldTxn) (*clientv3.TxnResponse, error) {
		if txn.writes("/state") && sent.Add(1) == 1 { // does not arrive
			kv.Delete(ctx, "/mutexes/a/", clientv3.WithPrefix())
			return nil, context.DeadlineExceeded
		}
		return txn.send(ctx)
	}}
	locks := newClient(t, etcd)
	l := take(t, locks, "a")
	err := l.UnlockWith([]clientv3.Op{clientv3.OpPut("/state", "done")})
	if state, _ := value(t, etcd, "/state"); !errors.Is(err, mutex.ErrNotHeld) || state != "" {
		t.Errorf("the error is %v, the state %q", err, state)
	}
}

func TestUnlockWithoutAnyAnswerCanBeAskedAgain(t *testing.T) {
	bubbleWith(t, mutex.Options{RequestTimeout: 5 * time.Second}, func(t *testing.T, f *fake, locks *mutex.Client) {
		done := []clientv3.Op{clientv3.OpPut("/state", "done")}
		l := take(t, locks, "a")
		f.away.Store(true)
		if err := l.UnlockWith(done); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, mutex.ErrUnknown) ||
			l.Context().Err() != nil {
			t.Errorf("nothing was sent: %v, %v", err, context.Cause(l.Context()))
		}
		f.loseAnswers.Store(1000)
		f.away.Store(false)
		if err := l.UnlockWith(done); !errors.Is(err, mutex.ErrUnknown) {
			t.Errorf("nothing was answered: %v", err)
		}
		f.loseAnswers.Store(0)
		if err := l.UnlockWith(done); err != nil {
			t.Errorf("it had been done: %v", err)
		}
		if err := l.Unlock(); err != nil || read(t, f.etcd, "a").Token != 0 {
			t.Errorf("unlock afterwards: %v", err)
		}
	})
}

// The first attempt is still in flight when the second is refused: the condition may hold when it arrives.
func TestUnlockWithWhoseConditionFailsWithoutAnAnswerIsUnknown(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Shared(t).Client(t)
	kv := etcd.KV
	var late *heldTxn
	var sent atomic.Int64
	etcd.KV = &txns{KV: kv, commit: func(ctx context.Context, txn *heldTxn) (*clientv3.TxnResponse, error) {
		if sent.Add(1) == 2 {
			late = txn
			return nil, context.DeadlineExceeded
		}
		return txn.send(ctx)
	}}
	locks := unhurried(t, etcd)
	l := take(t, locks, "a")
	ready := clientv3.Compare(clientv3.Value("/ready"), "=", "yes")
	err := l.UnlockWith([]clientv3.Op{clientv3.OpPut("/state", "done")}, ready)
	if !errors.Is(err, mutex.ErrUnknown) || !errors.Is(err, mutex.ErrCondition) {
		t.Errorf("the error is %v", err)
	}
	etcdtest.Put(t, etcd, "/ready", "yes")
	if r, err := late.send(t.Context()); err != nil || !r.Succeeded {
		t.Errorf("the late sending: %v", err)
	}
	if err := l.UnlockWith([]clientv3.Op{clientv3.OpPut("/state", "done")}, ready); err != nil {
		t.Errorf("it was done, but the error is %v", err)
	}
}

func TestUnlockWithRefusesWhatCannotWork(t *testing.T) {
	bubble(t, func(t *testing.T, _ *fake, locks *mutex.Client) {
		l := take(t, locks, "a")
		err := l.UnlockWith([]clientv3.Op{clientv3.OpPut("/mutexes/b/uuid", "")})
		if want := `unlock "a": the write to "/mutexes/b/uuid" lies among the locks below /mutexes/`; err == nil ||
			err.Error() != want {
			t.Errorf("got  %v\nwant %s", err, want)
		}
		inner := enter(t, locks, l)
		err = l.UnlockWith([]clientv3.Op{clientv3.OpPut("/state", "")})
		if err == nil || !strings.Contains(err.Error(), "entered again") {
			t.Errorf("below another handle: %v", err)
		}
		inner.Unlock()
		l.Unlock()
	})
}

func TestUnlockWithNeedsAnEtcdThatHasSpace(t *testing.T) {
	queue(t, func(t *testing.T, q *fake) {
		var full atomic.Bool
		l := take(t, newClient(t, withoutSpace(q.client(), &full)), "a")
		full.Store(true)
		began := time.Now()
		err := l.UnlockWith([]clientv3.Op{clientv3.OpPut("/state", "done")})
		if !locktxn.NoSpace(err) || l.Context().Err() != nil || time.Since(began) > time.Second {
			t.Errorf("after %v: %v, context: %v", time.Since(began), err, context.Cause(l.Context()))
		}
		unlock(t, l)
		full.Store(false)
	})
}
