package mutex_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/locktxn"
	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

func TestFailedConditionReportsTheValueInEtcd(t *testing.T) {
	queue(t, func(t *testing.T, q *fake) {
		locks := q.locks()
		revision := q.put("/state", "broken")
		ready := clientv3.Compare(clientv3.Value("/state"), "=", "ready")
		there := clientv3.Compare(clientv3.CreateRevision("/state"), ">", 0)
		absent := clientv3.Compare(clientv3.Version("/nothing"), ">", 0)
		write := mutex.Then(clientv3.OpPut("/written", "x"))
		try := func(conditions ...mutex.Option) (*mutex.ConditionError, error) {
			_, err := locks.TryLock(t.Context(), "a", append(conditions, write)...)
			failed, _ := errors.AsType[*mutex.ConditionError](err)
			return failed, err
		}
		failed, err := try(mutex.If(ready, there), mutex.If(absent))
		if failed == nil || !errors.Is(err, mutex.ErrCondition) || len(failed.Failed) != 2 || failed.Holder != nil {
			t.Fatalf("got %v", err)
		}
		if kv := failed.Failed[0].Keys; len(kv) != 1 || string(kv[0].Value) != "broken" {
			t.Errorf("the first that failed had %v", kv)
		}
		refusedWith(t, err, fmt.Sprintf(`lock "a": a condition does not hold: key "/state" is "broken" since `+
			`revision %d; there is no key "/nothing"`, revision))
		l := take(t, locks, "a")
		if failed, err := try(mutex.If(ready)); failed == nil || failed.Holder == nil ||
			failed.Holder.UUID != l.UUID() {
			t.Errorf("held, and the condition does not hold: %v", err)
		}
		if _, err := try(mutex.If(there)); !errors.Is(err, mutex.ErrHeld) {
			t.Errorf("held, and the condition holds: %v", err)
		}
		if got, _ := value(t, q.etcd, "/written"); got != "" {
			t.Error("a refused acquisition wrote")
		}
	})
}

func TestLateCommitBeforeTheRefusalIsTheHold(t *testing.T) {
	queue(t, func(t *testing.T, q *fake) {
		holder := take(t, q.locks(), "a")
		sent := 0
		var late *heldTxn
		etcd := onTxn(q.client(), func(ctx context.Context, txn *heldTxn) (*clientv3.TxnResponse, error) {
			switch sent++; sent {
			case 1:
				late = txn
				return nil, context.DeadlineExceeded
			case 2: // is refused; then the lock becomes free, and the first sending arrives
				r, err := txn.send(ctx)
				holder.Unlock()
				if late, err := late.send(ctx); err != nil || !late.Succeeded {
					t.Errorf("the late sending: %v, %v", late, err)
				}
				return r, err
			}
			return txn.send(ctx)
		})
		q.put("/old/1", "")
		l := take(t, newClient(t, etcd), "a", mutex.Then(clientv3.OpPut("/state", "running"),
			clientv3.OpDelete("/old/", clientv3.WithPrefix())))
		if _, revision := value(t, q.etcd, "/state"); revision != l.Token() || read(t, q.etcd, "a").UUID != l.UUID() ||
			etcdtest.Count(t, q.etcd, "/old/") != 0 {
			t.Errorf("token %d, written at %d", l.Token(), revision)
		}
	})
}

func TestUnansweredAcquisitionIsUnknownAndUndone(t *testing.T) {
	bubbleWith(t, mutex.Options{RequestTimeout: 5 * time.Second}, func(t *testing.T, f *fake, locks *mutex.Client) {
		f.loseAnswers.Store(1000)
		// After the request timeout nothing arrives: the lock is released while this test checks the rest.
		time.AfterFunc(5*time.Second-time.Millisecond, func() { f.away.Store(true) })
		_, err := locks.TryLock(context.Background(), "a", mutex.Then(clientv3.OpPut("/state", "running")))
		if !errors.Is(err, metadata.ErrOutcomeUnknown) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		synctest.Wait()
		if read(t, f.etcd, "a").Token == 0 {
			t.Error("the record is gone already: then it should have been known")
		}
		f.loseAnswers.Store(0)
		f.away.Store(false)
		time.Sleep(30 * time.Second)
		if read(t, f.etcd, "a").Token != 0 {
			t.Error("the abandoned acquisition is still held")
		}
	})
}

func TestOldAttemptIsSealedBeforeANewOne(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake, locks *mutex.Client) {
		f.away.Store(true)
		time.AfterFunc(6*time.Second, func() { f.away.Store(false) })
		take(t, locks, "a", mutex.AutoUnlockAfter(9*time.Second), mutex.SafetyMargin(time.Second),
			mutex.Then(clientv3.OpPut("/state", "running")))
		if d := time.Until(read(t, f.etcd, "a").AutoUnlockAt); d < 5*time.Second {
			t.Errorf("only %v are left of the hold", d)
		}
	})
}

// value returns the value of a key and its mod revision.
func value(t testing.TB, etcd *clientv3.Client, key string) (string, int64) {
	t.Helper()
	r, err := etcd.Get(context.Background(), key)
	proctest.Must(t, err)
	if len(r.Kvs) == 0 {
		return "", 0
	}
	return string(r.Kvs[0].Value), r.Kvs[0].ModRevision
}

func large(bytes int) clientv3.Op { return clientv3.OpPut("/mine", strings.Repeat("x", bytes)) }

func TestTooLargeWritesAreRefusedBeforeSending(t *testing.T) {
	_, locks := onEtcd(t)
	try := func(bytes int) error {
		l, err := locks.TryLock(t.Context(), "a", mutex.Then(large(bytes)))
		if err == nil {
			unlock(t, l)
		}
		return err
	}
	tooLarge := func(err error) bool {
		return err != nil && strings.Contains(err.Error(), "MiB, etcd takes at most 1.5 MiB")
	}
	const limit = 3 << 19
	for _, bytes := range []int{limit, 2 << 20, 3 << 20, 16 << 20} {
		if err := try(bytes); !tooLarge(err) {
			t.Errorf("%d bytes: %v", bytes, err)
		}
	}
	bytes := limit
	err := try(bytes)
	for tooLarge(err) {
		bytes -= 128
		err = try(bytes)
	}
	if err != nil || bytes < limit-8<<10 {
		t.Errorf("%d bytes are the most that is sent, and etcd says %v", bytes, err)
	}
}

// done is the write that goes with an unlock.
func done() []clientv3.Op { return []clientv3.Op{clientv3.OpPut("/state", "done")} }

func TestUnlockWithWritesIsAtomic(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake, locks *mutex.Client) {
		l := take(t, locks, "a", mutex.Heartbeat(time.Hour))
		time.Sleep(time.Second) // it is watched now
		f.put("/state", "broken")
		ready := clientv3.Compare(clientv3.Value("/state"), "=", "ready")
		err := l.UnlockWith(done(), ready)
		if failed, _ := errors.AsType[*mutex.ConditionError](err); failed == nil || !strings.Contains(err.Error(),
			`key "/state" is "broken"`) {
			t.Fatalf("got %v", err)
		}
		if state, _ := value(t, f.etcd, "/state"); state != "broken" || l.Context().Err() != nil ||
			read(t, f.etcd, "a").UUID != l.UUID() {
			t.Errorf("the condition did not hold, but the state is %q, the context %v", state,
				context.Cause(l.Context()))
		}
		f.put("/state", "ready")
		proctest.Must(t, l.UnlockWith(done(), ready))
		if state, _ := value(t, f.etcd, "/state"); state != "done" || read(t, f.etcd, "a").Token != 0 {
			t.Errorf("the state is %q, the lock is held by %s", state, read(t, f.etcd, "a").UUID)
		}
		if cause := context.Cause(l.Context()); cause != mutex.ErrUnlocked {
			t.Errorf("the context ended with %v", cause)
		}
		unlock(t, l)
		if err := l.UnlockWith(done()); err != mutex.ErrUnlocked {
			t.Errorf("a second time: %v", err)
		}
	})
}

// The watch hears of the release before the caller does.
func TestWatchDoesNotReportAReleaseAsLoss(t *testing.T) {
	queue(t, func(t *testing.T, q *fake) {
		slow := onTxn(q.client(), func(ctx context.Context, txn *heldTxn) (*clientv3.TxnResponse, error) {
			r, err := txn.send(ctx)
			if txn.writes("/state") {
				time.Sleep(time.Second)
			}
			return r, err
		})
		l := take(t, newClient(t, slow), "a")
		time.Sleep(time.Second) // it is watched now
		proctest.Must(t, l.UnlockWith(done()))
		if cause := context.Cause(l.Context()); cause != mutex.ErrUnlocked {
			t.Fatalf("the context ended with %v", cause)
		}
	})
}

func TestUnlockWithWritesIsAppliedOnceIfTheAnswerIsLost(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake, locks *mutex.Client) {
		l := take(t, locks, "a")
		f.loseAnswers.Store(1)
		time.AfterFunc(time.Second, func() { f.put("/state", "again") })
		proctest.Must(t, l.UnlockWith(done()))
		if state, _ := value(t, f.etcd, "/state"); state != "again" {
			t.Errorf("the state is %q: it was written twice", state)
		}
	})
}

// Without its mark, an unlock whose first answer was lost would look like a removal by another client.
func TestUnlockWithWritesAfterARemovalIsALoss(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake, locks *mutex.Client) {
		l := take(t, locks, "a")
		f.away.Store(true)
		time.AfterFunc(time.Second, func() {
			f.delete(layout(t).Record("a"))
			f.away.Store(false)
		})
		err := l.UnlockWith(done())
		if state, _ := value(t, f.etcd, "/state"); !errors.Is(err, mutex.ErrNotHeld) || state != "" {
			t.Errorf("the error is %v, the state %q", err, state)
		}
	})
}

func TestUnansweredUnlockCanBeRetried(t *testing.T) {
	bubbleWith(t, mutex.Options{RequestTimeout: 5 * time.Second}, func(t *testing.T, f *fake, locks *mutex.Client) {
		l := take(t, locks, "a")
		f.away.Store(true)
		if err := l.UnlockWith(done()); !errors.Is(err, context.DeadlineExceeded) ||
			errors.Is(err, metadata.ErrOutcomeUnknown) || l.Context().Err() != nil {
			t.Errorf("nothing was sent: %v, %v", err, context.Cause(l.Context()))
		}
		f.loseAnswers.Store(1000)
		f.away.Store(false)
		if err := l.UnlockWith(done()); !errors.Is(err, metadata.ErrOutcomeUnknown) {
			t.Errorf("nothing was answered: %v", err)
		}
		f.loseAnswers.Store(0)
		proctest.Must(t, l.UnlockWith(done()))
		if err := l.Unlock(); err != nil || read(t, f.etcd, "a").Token != 0 {
			t.Errorf("unlock afterwards: %v", err)
		}
	})
}

// The first attempt is still in flight when the second is refused: the condition may hold when it arrives.
func TestUnlockWithFailedConditionAndLostAnswerIsUnknown(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake, locks *mutex.Client) {
		etcd := f.client()
		l := take(t, newClient(t, etcd), "a")
		late := stallFirst(etcd)
		ready := clientv3.Compare(clientv3.Value("/ready"), "=", "yes")
		if err := l.UnlockWith(done(), ready); !errors.Is(err, metadata.ErrOutcomeUnknown) ||
			!errors.Is(err, mutex.ErrCondition) {
			t.Errorf("the error is %v", err)
		}
		f.put("/ready", "yes")
		late.arrive(t)
		proctest.Must(t, l.UnlockWith(done(), ready))
	})
}

func TestUnlockWithRefusesBadInput(t *testing.T) {
	bubble(t, func(t *testing.T, _ *fake, locks *mutex.Client) {
		l := take(t, locks, "a")
		refusedWith(t, l.UnlockWith([]clientv3.Op{clientv3.OpPut("/mutexes/b/uuid", "")}),
			`unlock "a": the write to "/mutexes/b/uuid" lies among the locks below /mutexes/`)
		refusedWith(t, l.UnlockWith([]clientv3.Op{large(3 << 20)}), "MiB, etcd takes at most 1.5 MiB")
		enter(t, locks, l)
		refusedWith(t, l.UnlockWith(done()), "entered again")
		if l.Context().Err() != nil {
			t.Errorf("a refusal ended the hold: %v", context.Cause(l.Context()))
		}
	})
}

func TestUnlockWithFailsOnAFullEtcd(t *testing.T) {
	queue(t, func(t *testing.T, q *fake) {
		l := take(t, q.locks(), "a")
		q.full.Store(true)
		if err := l.UnlockWith(done()); !locktxn.IsNoSpace(err) || l.Context().Err() != nil || passed() > time.Second {
			t.Errorf("after %v: %v, context: %v", passed(), err, context.Cause(l.Context()))
		}
		unlock(t, l)
		q.full.Store(false)
	})
}
