package mutex_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/locktxn"
	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

func TestHoldThatSomebodyEnds(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		end  func(t *testing.T, etcd *clientv3.Client)
		want string
	}{
		{"a person with a reason", func(t *testing.T, etcd *clientv3.Client) {
			removeWith(t, etcd, metadata.EndedForced, "ann", "the host is on fire")
		}, `lock "a" was lost: force-unlocked by ann just now: the host is on fire`},
		{"an unlocker", func(t *testing.T, etcd *clientv3.Client) {
			removeWith(t, etcd, metadata.EndedAutoUnlocked, "unlocker-1", "auto_unlock_at passed")
		}, `lock "a" was lost: auto-unlocked by unlocker-1 just now: auto_unlock_at passed`},
		{"etcdctl del, without a note", func(t *testing.T, etcd *clientv3.Client) {
			if _, err := etcd.Delete(context.Background(), "/mutexes/a/", clientv3.WithPrefix()); err != nil {
				t.Fatal(err)
			}
		}, `lock "a" was lost: its record is gone, and whoever removed it left no note`},
		{"etcdctl put over the uuid", func(t *testing.T, etcd *clientv3.Client) {
			etcdtest.Put(t, etcd, "/mutexes/a/uuid", "0f8fad5b-d9cb-469f-a165-70867728950e")
		}, `lock "a" was lost: it is held by billing on host-1`},
		{"a note that says nothing", func(t *testing.T, etcd *clientv3.Client) {
			removeWith(t, etcd, "", "", "")
		}, `lock "a" was lost: its record is gone, and whoever removed it left no note`},
		{"a hostile note", func(t *testing.T, etcd *clientv3.Client) {
			removeWith(t, etcd, "\x00", "\x1b[2J\n", strings.Repeat("\u202e", 1000))
		}, `lock "a" was lost: \x00 by \x1b[2J\n just now: \u202e`},
	} {
		t.Run(c.name, func(t *testing.T) {
			// In a bubble, because a holder on a busy machine does not wait for the note.
			queue(t, func(t *testing.T, q *fake) {
				etcd := q.client()
				watches := spyOnWatches(etcd)
				l := take(t, newClient(t, etcd), "a")
				<-watches
				began := time.Now()
				c.end(t, etcd)
				<-l.Lost()
				took := time.Since(began)
				cause := context.Cause(l.Context())
				lost, ok := errors.AsType[*mutex.LostError](cause)
				if !ok || !lost.Certain || lost.Token != l.Token() || !errors.Is(cause, mutex.ErrNotHeld) {
					t.Fatalf("the cause is %#v", cause)
				}
				if !strings.HasPrefix(cause.Error(), c.want) || strings.ContainsAny(cause.Error(), "\n\x1b\x00\u202e") {
					t.Errorf("got  %q\nwant %q", cause, c.want)
				}
				if took > 0 {
					t.Errorf("the context ended only after %v", took)
				}
				if err := l.Alive(context.Background()); err != cause {
					t.Errorf("alive: %v", err)
				}
				if err := l.Unlock(); err != cause {
					t.Errorf("unlock: %v", err)
				}
				q.delete(layout(t).Record("a")) // that of the client that overwrote the uuid
			})
		})
	}
}

func TestAliveOfAHoldThatAnotherUUIDReplacedIsALoss(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake, locks *mutex.Client) {
		l := take(t, locks, "a")
		f.put("/mutexes/a/uuid", foreignUUID) // the token stays
		if err := l.Alive(context.Background()); !errors.Is(err, mutex.ErrNotHeld) {
			t.Errorf("got %v", err)
		}
	})
}

func TestDoTellsThatTheLockWasLostMeanwhile(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Shared(t).Client(t)
	watches := spyOnWatches(etcd)
	locks := newClient(t, etcd)
	err := locks.Do(context.Background(), "a", func(ctx context.Context) error {
		<-watches
		removeWith(t, etcd, metadata.EndedForced, "ann", "a mistake")
		<-ctx.Done()
		if !errors.Is(context.Cause(ctx), mutex.ErrNotHeld) {
			t.Errorf("the cause is %v", context.Cause(ctx))
		}
		return nil
	})
	if _, ok := errors.AsType[*mutex.LostError](err); !ok {
		t.Errorf("got %v", err)
	}
}

// removeWith ends the hold of lock "a" as an unlocker or a person does.
func removeWith(t testing.TB, etcd *clientv3.Client, ended, by, why string) {
	t.Helper()
	doc := read(t, etcd, "a")
	lease, err := etcd.Grant(context.Background(), 60)
	if err != nil {
		t.Fatal(err)
	}
	r, err := locktxn.ForceUnlock(layout(t), &locktxn.Removal{
		Removal: metadata.Removal{Record: &doc.Record, Ending: metadata.NewEnding(&doc.Record, ended, by, why,
			time.Now())}, Lease: lease.ID,
	}).Commit(context.Background(), etcd)
	if err != nil || !r.Succeeded {
		t.Fatal(err, r)
	}
}

func TestHoldThatIsExtendedAtOnceIsWatchedAllTheSame(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Shared(t).Client(t)
	watches := spyOnWatches(etcd)
	l := take(t, newClient(t, etcd), "a")
	defer l.Unlock()
	alive(t, l)
	select {
	case <-watches:
	case <-time.After(2 * time.Minute):
		t.Error("it is not watched")
	}
}

func TestShortHoldThatIsGoneIsFoundByAliveAndUnlock(t *testing.T) {
	for name, act := range map[string]func(l *mutex.Lock) error{
		"alive":  func(l *mutex.Lock) error { return l.Alive(context.Background()) },
		"unlock": (*mutex.Lock).Unlock,
	} {
		t.Run(name, func(t *testing.T) {
			// In a bubble it is short however busy the machine is, and nobody watches it yet.
			queue(t, func(t *testing.T, q *fake) {
				locks := q.locks()
				l := take(t, locks, "a")
				removeWith(t, q.etcd, metadata.EndedForced, "ann", "a mistake")
				again := take(t, locks, "a", mutex.Owner("another"))
				err := act(l)
				lost, ok := errors.AsType[*mutex.LostError](err)
				if !ok || !lost.Certain {
					t.Fatalf("got %v", err)
				}
				if lost.Ending == nil || lost.Ending.By != "ann" || lost.Holder == nil ||
					lost.Holder.Owner != "another" {
					t.Errorf("ended by %+v, held by %+v", lost.Ending, lost.Holder)
				}
				unlock(t, again) // the newer hold stands
			})
		})
	}
}
