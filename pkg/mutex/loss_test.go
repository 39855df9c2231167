package mutex_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

func TestHoldEndedByOthersIsALoss(t *testing.T) {
	type end struct {
		by   func(t *testing.T, etcd *clientv3.Client)
		want string
	}
	removed := func(ended, by, why string) func(*testing.T, *clientv3.Client) {
		return func(t *testing.T, etcd *clientv3.Client) { endHold(t, etcd, "a", ended, by, why) }
	}
	queues(t, map[string]end{
		"a person with a reason": {removed(metadata.EndingForced, "ann", "the host is on fire"),
			`force-unlocked by ann just now: the host is on fire`},
		"an unlocker": {removed(metadata.EndingAutoUnlocked, "unlocker-1", "auto_unlock_at passed"),
			`auto-unlocked by unlocker-1 just now: auto_unlock_at passed`},
		"etcdctl del, without a note": {func(t *testing.T, etcd *clientv3.Client) {
			etcd.Delete(t.Context(), layout(t).Record("a"), clientv3.WithPrefix())
		}, `its record is gone, and whoever removed it left no note`},
		"etcdctl put over the uuid": {func(t *testing.T, etcd *clientv3.Client) {
			etcdtest.Put(t, etcd, layout(t).Field("a", lockrecord.FieldUUID), foreignUUID)
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

func TestLossWhoseNoteCannotBeReadSaysSo(t *testing.T) {
	queue(t, func(t *testing.T, q *fake) {
		l := take(t, q.locks(), "a")
		time.Sleep(time.Second)   // it is watched now
		q.loseAnswers.Store(1000) // but not those of watches
		endHold(t, q.etcd, "a", metadata.EndingForced, "ann", "a mistake")
		ends(t, l, time.Second+250*time.Millisecond) // when it gives up reading why
		want := `lock "a" was lost: its record is gone; etcd did not say in time who removed it`
		if cause := context.Cause(l.Context()); cause.Error() != want {
			t.Errorf("got  %q\nwant %q", cause, want)
		}
	})
}

func TestAliveOfAReplacedHoldIsALoss(t *testing.T) {
	holding(t, func(t *testing.T, f *fake, l *mutex.Lock) {
		f.put("/mutexes/a/uuid", foreignUUID) // the token stays
		if err := l.Alive(t.Context()); !errors.Is(err, mutex.ErrNotHeld) {
			t.Errorf("got %v", err)
		}
	})
}

func TestDoReportsALossDuringItsFunction(t *testing.T) {
	queue(t, func(t *testing.T, q *fake) {
		err := q.locks().Do(t.Context(), "a", func(ctx context.Context) error {
			endHold(t, q.etcd, "a", metadata.EndingForced, "ann", "a mistake")
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

func TestImmediatelyExtendedHoldIsStillWatched(t *testing.T) {
	holding(t, func(t *testing.T, f *fake, l *mutex.Lock) {
		alive(t, l)
		time.Sleep(time.Second)
		f.delete(layout(t).Record("a"))
		ends(t, l, time.Second)
	})
}

func TestAliveAndUnlockNoticeTheLossOfAShortHold(t *testing.T) {
	queues(t, map[string]func(*mutex.Lock) error{
		"alive":  func(l *mutex.Lock) error { return l.Alive(context.Background()) },
		"unlock": (*mutex.Lock).Unlock,
	}, func(t *testing.T, q *fake, act func(*mutex.Lock) error) { // it is so short that nobody watches it yet
		locks := q.locks()
		l := take(t, locks, "a")
		endHold(t, q.etcd, "a", metadata.EndingForced, "ann", "a mistake")
		take(t, locks, "a", mutex.Owner("another"))
		lost, ok := errors.AsType[*mutex.LostError](act(l))
		if !ok || !lost.Certain || lost.Ending == nil || lost.Ending.By != "ann" || lost.Holder == nil ||
			lost.Holder.Owner != "another" {
			t.Fatalf("got %+v", lost)
		}
	})
}

func TestRefusalMessages(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	by := func(owner string, alert, autoUnlock time.Duration) metadata.FullRecord {
		return metadata.FullRecord{Record: metadata.Record{Token: 7, Identity: metadata.Identity{Owner: owner},
			AlertAt: now.Add(alert), AutoUnlockAt: now.Add(autoUnlock)}}
	}
	told := by("a", 10*time.Minute, 2*time.Hour)
	told.Hostname, told.PID = "h", 7
	told.Purpose, told.LockedAt = "x", now.Add(-10*time.Minute)
	reader := by("r", time.Minute, 2*time.Minute)
	reader.Attributes = map[string]any{metadata.AttributeKind: metadata.KindShared}
	several := []metadata.FullRecord{by("a", time.Hour, 3*time.Hour), by("b", time.Hour, 2*time.Hour),
		by("c", time.Hour, 4*time.Hour)}
	five := append(several, by("d", time.Hour, 5*time.Hour), by("e", time.Hour, 6*time.Hour))
	delay := &metadata.LockDelay{Owner: "a", Hostname: "h", At: metadata.Time{Time: now}, Seconds: 60, Leased: true}
	const delayed = `a lock delay of 1m after the hold of a on h, ended 0s ago, with 1:00 left`
	odd := metadata.FullRecord{Record: metadata.Record{Token: 7, Identity: metadata.Identity{Owner: "\x1b[31m\n\u202e",
		Hostname: strings.Repeat("h", 9999), Purpose: "\"\n"}}}
	for _, c := range []struct {
		e    mutex.HeldError
		want string
	}{
		{mutex.HeldError{Holder: told}, `lock "l" is held by a on h (pid 7), taken 10 minutes ago for "x"; ` +
			`alert in 10 minutes, auto-unlock in 2 hours`},
		{mutex.HeldError{Holder: by("a", 10*time.Minute, 2*time.Hour)},
			`lock "l" is held by a; alert in 10 minutes, auto-unlock in 2 hours`},
		{mutex.HeldError{Holder: by("a", time.Second/2, time.Second/2)},
			`lock "l" is held by a; alerted just now, auto-unlock was due just now`},
		{mutex.HeldError{Holder: by("a", -time.Hour, -5*time.Minute), NoUnlocker: true, Position: 1},
			`lock "l" is held by a; alerted 60 minutes ago, auto-unlock was due 5 minutes ago; ` +
				`no unlocker is running, so nothing removes it; position 1 in the queue`},
		{mutex.HeldError{Holder: by("a", time.Minute, time.Hour), NoUnlocker: true},
			`lock "l" is held by a; alert in 60 seconds, auto-unlock in 60 minutes`},
		{mutex.HeldError{Holder: by("a", 2*time.Hour, 5*time.Minute)},
			`lock "l" is held by a; unless extended, it alerts and is auto-unlocked in 5 minutes`},
		{mutex.HeldError{Holder: odd}, `lock "l" is held by \x1b[31m\n\u202e on ` + strings.Repeat("h", 120) +
			`… for "\"\n"; no readable alert time, no readable auto-unlock time`},
		{mutex.HeldError{Holder: by("a", time.Minute, time.Hour), CallSite: "x.go:7", Position: 2,
			Err: context.Canceled},
			`context canceled: lock "l" is held by a; alert in 60 seconds, auto-unlock in 60 minutes; ` +
				`this very process took it at x.go:7; position 2 in the queue`},
		{mutex.HeldError{Position: 2}, `lock "l" is free, but others queue for it; position 2 in the queue`},
		{mutex.HeldError{Delay: delay}, `nobody holds lock "l"; ` + delayed},
		{mutex.HeldError{Kind: metadata.KindSemaphore, Holders: five, Limit: 5, Weight: 1, CallSite: "x.go:7"},
			`semaphore "l": 0 of 5 permits free, 1 wanted; held by a, b, c and 2 others; ` +
				`the first of them is auto-unlocked in 2 hours`},
		{mutex.HeldError{Kind: metadata.KindSemaphore, Holders: several[:1], Limit: 2, Free: 1, Weight: 1},
			`semaphore "l": 1 of 2 permits free, but others queue for them`},
		{mutex.HeldError{Kind: metadata.KindSemaphore, Holders: several[:1], Limit: 2, Free: 1, Weight: 2,
			Delay: delay},
			`semaphore "l": 1 of 2 permits free, 2 wanted; held by a; alert in 60 minutes, auto-unlock in 3 hours; ` +
				delayed},
		{mutex.HeldError{Kind: metadata.KindShared, Holders: []metadata.FullRecord{reader}},
			`lock "l" is read by r; alert in 60 seconds, auto-unlock in 2 minutes, but others queue for it`},
		{mutex.HeldError{Kind: metadata.KindExclusive, Holders: []metadata.FullRecord{reader, several[1]}},
			`lock "l" is read by r and b; the first of them is auto-unlocked in 2 minutes`},
		{mutex.HeldError{Kind: metadata.KindExclusive, Delay: delay}, `nobody holds lock "l"; ` + delayed},
		{mutex.HeldError{Kind: metadata.KindExclusive}, `lock "l" is free, but others queue for it`},
	} {
		c.e.Name = "l"
		c.e.At = now
		if got := c.e.Error(); got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
	asked := &mutex.FinishRequestError{Name: "l", Request: metadata.FinishRequest{By: "\x1b[2J",
		Reason: strings.Repeat("\u202e\n", 300)}}
	if said := asked.Error(); strings.ContainsAny(said, "\n\x1b\u202e") || len(said) > 2000 {
		t.Errorf("%q", said)
	}
}
