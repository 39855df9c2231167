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
	type end struct {
		by   func(t *testing.T, etcd *clientv3.Client)
		want string
	}
	removed := func(ended, by, why string) func(*testing.T, *clientv3.Client) {
		return func(t *testing.T, etcd *clientv3.Client) { removeWith(t, etcd, ended, by, why) }
	}
	queues(t, map[string]end{
		"a person with a reason": {removed(metadata.EndedForced, "ann", "the host is on fire"),
			`force-unlocked by ann just now: the host is on fire`},
		"an unlocker": {removed(metadata.EndedAutoUnlocked, "unlocker-1", "auto_unlock_at passed"),
			`auto-unlocked by unlocker-1 just now: auto_unlock_at passed`},
		"etcdctl del, without a note": {func(t *testing.T, etcd *clientv3.Client) {
			etcd.Delete(t.Context(), layout(t).Record("a"), clientv3.WithPrefix())
		}, `its record is gone, and whoever removed it left no note`},
		"etcdctl put over the uuid": {func(t *testing.T, etcd *clientv3.Client) {
			etcdtest.Put(t, etcd, layout(t).Field("a", metadata.FieldUUID), foreignUUID)
		}, `it is held by billing on host-1`},
		"a note that says nothing": {removed("", "", ""), `its record is gone, and whoever removed it left no note`},
		"a hostile note": {removed("\x00", "\x1b[2J\n", strings.Repeat("\u202e", 1000)),
			`\x00 by \x1b[2J\n just now: \u202e`},
	}, func(t *testing.T, q *fake, c end) {
		l := take(t, q.locks(), "a")
		time.Sleep(time.Second) // it is watched now
		c.by(t, q.etcd)
		ends(t, l, time.Second)
		cause := context.Cause(l.Context())
		lost, ok := errors.AsType[*mutex.LostError](cause)
		if !ok || !lost.Certain || lost.Token != l.Token() || !errors.Is(cause, mutex.ErrNotHeld) {
			t.Fatalf("the cause is %#v", cause)
		}
		if !strings.HasPrefix(cause.Error(), `lock "a" was lost: `+c.want) ||
			strings.ContainsAny(cause.Error(), "\n\x1b\x00\u202e") {
			t.Errorf("got  %q\nwant %q", cause, c.want)
		}
		for of, err := range map[string]error{"alive": l.Alive(t.Context()), "unlock": l.Unlock()} {
			if err != cause {
				t.Errorf("%s: %v", of, err)
			}
		}
		q.delete(layout(t).Record("a")) // that of the client that overwrote the uuid
	})
}

func TestAliveOfAHoldThatAnotherUUIDReplacedIsALoss(t *testing.T) {
	holding(t, func(t *testing.T, f *fake, l *mutex.Lock) {
		f.put("/mutexes/a/uuid", foreignUUID) // the token stays
		if err := l.Alive(t.Context()); !errors.Is(err, mutex.ErrNotHeld) {
			t.Errorf("got %v", err)
		}
	})
}

func TestDoTellsThatTheLockWasLostMeanwhile(t *testing.T) {
	queue(t, func(t *testing.T, q *fake) {
		err := q.locks().Do(t.Context(), "a", func(ctx context.Context) error {
			removeWith(t, q.etcd, metadata.EndedForced, "ann", "a mistake")
			<-ctx.Done()
			if !errors.Is(context.Cause(ctx), mutex.ErrNotHeld) {
				t.Errorf("the cause is %v", context.Cause(ctx))
			}
			return nil
		})
		if _, ok := errors.AsType[*mutex.LostError](err); !ok {
			t.Errorf("got %v", err)
		}
	})
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
	holding(t, func(t *testing.T, f *fake, l *mutex.Lock) {
		alive(t, l)
		time.Sleep(time.Second)
		f.delete(layout(t).Record("a"))
		ends(t, l, time.Second)
	})
}

func TestShortHoldThatIsGoneIsFoundByAliveAndUnlock(t *testing.T) {
	queues(t, map[string]func(*mutex.Lock) error{
		"alive":  func(l *mutex.Lock) error { return l.Alive(context.Background()) },
		"unlock": (*mutex.Lock).Unlock,
	}, func(t *testing.T, q *fake, act func(*mutex.Lock) error) { // it is so short that nobody watches it yet
		locks := q.locks()
		l := take(t, locks, "a")
		removeWith(t, q.etcd, metadata.EndedForced, "ann", "a mistake")
		take(t, locks, "a", mutex.Owner("another"))
		lost, ok := errors.AsType[*mutex.LostError](act(l))
		if !ok || !lost.Certain || lost.Ending == nil || lost.Ending.By != "ann" || lost.Holder == nil ||
			lost.Holder.Owner != "another" {
			t.Fatalf("got %+v", lost)
		}
	})
}
