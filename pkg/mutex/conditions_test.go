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

	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

func TestWritesAreDoneWithTheAcquisition(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake, locks *mutex.Client) {
		f.put("/state", "ready")
		f.put("/old/1", "x")
		l := take(t, locks, "a", mutex.If(clientv3.Compare(clientv3.Value("/state"), "=", "ready")),
			mutex.Then(clientv3.OpPut("/state", "running"), clientv3.OpDelete("/old/", clientv3.WithPrefix())))
		if n := etcdtest.Count(t, f.etcd, "/old/"); n != 0 {
			t.Error("the deletion was not done")
		}
		if value, revision := value(t, f.etcd, "/state"); value != "running" || revision != l.Token() {
			t.Errorf("the state is %q since %d, want running since %d", value, revision, l.Token())
		}
	})
}

func TestConditionThatDoesNotHoldIsToldWithWhatEtcdHas(t *testing.T) {
	etcd, locks := onEtcd(t)
	etcdtest.Put(t, etcd, "/state", "broken")
	write := mutex.Then(clientv3.OpPut("/written", "x"))
	ready := clientv3.Compare(clientv3.Value("/state"), "=", "ready")
	there := clientv3.Compare(clientv3.CreateRevision("/state"), ">", 0)
	absent := clientv3.Compare(clientv3.Version("/nothing"), ">", 0)

	_, err := locks.TryLock(t.Context(), "a", write, mutex.If(ready, there), mutex.If(absent))
	failed, ok := errors.AsType[*mutex.ConditionError](err)
	if !ok || !errors.Is(err, mutex.ErrCondition) || len(failed.Failed) != 2 || failed.Holder != nil {
		t.Fatalf("got %v", err)
	}
	if kv := failed.Failed[0].Keys; len(kv) != 1 || string(kv[0].Value) != "broken" {
		t.Errorf("the first that failed had %v", kv)
	}
	want := fmt.Sprintf(`lock "a": a condition does not hold: key "/state" is "broken" since revision %d; `+
		`there is no key "/nothing"`, failed.Failed[0].Keys[0].ModRevision)
	if err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}

	l := take(t, locks, "a")
	_, err = locks.TryLock(t.Context(), "a", write, mutex.If(ready))
	if failed, _ := errors.AsType[*mutex.ConditionError](err); failed == nil || failed.Holder == nil ||
		failed.Holder.UUID != l.UUID() {
		t.Errorf("held, and the condition does not hold: %v", err)
	}
	_, err = locks.TryLock(t.Context(), "a", write, mutex.If(there))
	if held, _ := errors.AsType[*mutex.HeldError](err); held == nil || held.Holder.UUID != l.UUID() {
		t.Errorf("held, and the condition holds: %v", err)
	}
	l.Unlock()
	if got, _ := value(t, etcd, "/written"); got != "" || etcdtest.Count(t, etcd, mutex.DefaultPrefix) != 0 {
		t.Errorf("%q was written, %d keys are left", got, etcdtest.Count(t, etcd, mutex.DefaultPrefix))
	}
}

func TestLateCommitJustBeforeTheRefusalIsTheHold(t *testing.T) {
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
		l := take(t, newClient(t, etcd), "a", mutex.Then(clientv3.OpPut("/state", "running")))
		if _, revision := value(t, q.etcd, "/state"); revision != l.Token() || read(t, q.etcd, "a").UUID != l.UUID() {
			t.Errorf("token %d, written at %d", l.Token(), revision)
		}
	})
}

func TestWithoutAnyAnswerItIsNotKnownAndTakenBack(t *testing.T) {
	bubbleWith(t, mutex.Options{RequestTimeout: 5 * time.Second}, func(t *testing.T, f *fake, locks *mutex.Client) {
		f.loseAnswers.Store(1000)
		// From the end of the request timeout on nothing arrives: what was taken is given back beside what is checked
		// here.
		time.AfterFunc(5*time.Second-time.Millisecond, func() { f.away.Store(true) })
		_, err := locks.TryLock(context.Background(), "a", mutex.Then(clientv3.OpPut("/state", "running")))
		if !errors.Is(err, mutex.ErrUnknown) || !errors.Is(err, context.DeadlineExceeded) {
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

func TestOldBidIsSealedBeforeANewOne(t *testing.T) {
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

// value is what a key has, and since which revision.
func value(t testing.TB, etcd *clientv3.Client, key string) (string, int64) {
	t.Helper()
	r, err := etcd.Get(context.Background(), key)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Kvs) == 0 {
		return "", 0
	}
	return string(r.Kvs[0].Value), r.Kvs[0].ModRevision
}

func large(bytes int) clientv3.Op { return clientv3.OpPut("/mine", strings.Repeat("x", bytes)) }

func TestWritesThatAreTooLargeAreRefusedBeforeTheyAreSent(t *testing.T) {
	_, locks := onEtcd(t)
	try := func(bytes int) error {
		l, err := locks.TryLock(t.Context(), "a", mutex.Then(large(bytes)))
		if err == nil {
			unlock(t, l)
		}
		return err
	}
	tooLarge := func(err error) bool {
		return err != nil && strings.Contains(err.Error(), "MiB, and etcd takes 1.5 MiB")
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
