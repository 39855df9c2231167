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
	"github.com/clustermutex/unlocker/pkg/mutex"
)

// done is what a holder writes with its unlock.
func done() []clientv3.Op { return []clientv3.Op{clientv3.OpPut("/state", "done")} }

func TestUnlockWithWritesIsBothOrNothing(t *testing.T) {
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
			t.Errorf("the condition did not hold, but the state is %q, the context %v", state, context.Cause(l.Context()))
		}
		f.put("/state", "ready")
		if err := l.UnlockWith(done(), ready); err != nil {
			t.Fatal(err)
		}
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
func TestReleaseIsNoLossToTheWatch(t *testing.T) {
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
		if err := l.UnlockWith(done()); err != nil {
			t.Fatal(err)
		}
		if cause := context.Cause(l.Context()); cause != mutex.ErrUnlocked {
			t.Fatalf("the context ended with %v", cause)
		}
	})
}

func TestUnlockWithWritesWhoseAnswerIsLostIsDoneOnce(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake, locks *mutex.Client) {
		l := take(t, locks, "a")
		f.loseAnswers.Store(1)
		time.AfterFunc(time.Second, func() { f.put("/state", "again") })
		if err := l.UnlockWith(done()); err != nil {
			t.Errorf("it was done, but the error is %v", err)
		}
		if state, _ := value(t, f.etcd, "/state"); state != "again" {
			t.Errorf("the state is %q: it was written twice", state)
		}
	})
}

// Without its mark, an unlock whose first answer was lost would look like a removal by somebody else.
func TestUnlockWithWritesThatSomebodyForestalledIsALoss(t *testing.T) {
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

func TestUnlockWithoutAnyAnswerCanBeAskedAgain(t *testing.T) {
	bubbleWith(t, mutex.Options{RequestTimeout: 5 * time.Second}, func(t *testing.T, f *fake, locks *mutex.Client) {
		l := take(t, locks, "a")
		f.away.Store(true)
		if err := l.UnlockWith(done()); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, mutex.ErrUnknown) ||
			l.Context().Err() != nil {
			t.Errorf("nothing was sent: %v, %v", err, context.Cause(l.Context()))
		}
		f.loseAnswers.Store(1000)
		f.away.Store(false)
		if err := l.UnlockWith(done()); !errors.Is(err, mutex.ErrUnknown) {
			t.Errorf("nothing was answered: %v", err)
		}
		f.loseAnswers.Store(0)
		if err := l.UnlockWith(done()); err != nil {
			t.Errorf("it had been done: %v", err)
		}
		if err := l.Unlock(); err != nil || read(t, f.etcd, "a").Token != 0 {
			t.Errorf("unlock afterwards: %v", err)
		}
	})
}

// The first attempt is still in flight when the second is refused: the condition may hold when it arrives.
func TestUnlockWithWhoseConditionFailsWithoutAnAnswerIsUnknown(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake, locks *mutex.Client) {
		etcd := f.client()
		l := take(t, newClient(t, etcd), "a")
		late := stallFirst(etcd)
		ready := clientv3.Compare(clientv3.Value("/ready"), "=", "yes")
		if err := l.UnlockWith(done(), ready); !errors.Is(err, mutex.ErrUnknown) || !errors.Is(err, mutex.ErrCondition) {
			t.Errorf("the error is %v", err)
		}
		f.put("/ready", "yes")
		late.arrive(t)
		if err := l.UnlockWith(done(), ready); err != nil {
			t.Errorf("it was done, but the error is %v", err)
		}
	})
}

func TestUnlockWithRefusesWhatCannotWork(t *testing.T) {
	bubble(t, func(t *testing.T, _ *fake, locks *mutex.Client) {
		l := take(t, locks, "a")
		refusedWith(t, l.UnlockWith([]clientv3.Op{clientv3.OpPut("/mutexes/b/uuid", "")}),
			`unlock "a": the write to "/mutexes/b/uuid" lies among the locks below /mutexes/`)
		refusedWith(t, l.UnlockWith([]clientv3.Op{large(3 << 20)}), "MiB, and etcd takes 1.5 MiB")
		enter(t, locks, l)
		refusedWith(t, l.UnlockWith(done()), "entered again")
		if l.Context().Err() != nil {
			t.Errorf("a refusal ended the hold: %v", context.Cause(l.Context()))
		}
	})
}

func TestUnlockWithNeedsAnEtcdThatHasSpace(t *testing.T) {
	queue(t, func(t *testing.T, q *fake) {
		var full atomic.Bool
		l := take(t, newClient(t, withoutSpace(q.client(), &full)), "a")
		full.Store(true)
		if err := l.UnlockWith(done()); !locktxn.NoSpace(err) || l.Context().Err() != nil || passed() > time.Second {
			t.Errorf("after %v: %v, context: %v", passed(), err, context.Cause(l.Context()))
		}
		unlock(t, l)
		full.Store(false)
	})
}
