package mutex_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clustermutex/unlocker/internal/locktxn/etcdretry"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

// The tests of this file run in a synctest bubble: hours pass at once, and a goroutine that outlives the bubble fails
// the test.

func bubble(t *testing.T, test func(t *testing.T, f *fake, locks *mutex.Client)) {
	t.Helper()
	bubbleWith(t, mutex.Options{}, test)
}

func bubbleWith(t *testing.T, o mutex.Options, test func(t *testing.T, f *fake, locks *mutex.Client)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		c := newClient(t, f.client(), o)
		defer f.away.Store(false)
		test(t, f, c)
	})
}

// bubbles runs a test for each case in a bubble.
func bubbles[C any](t *testing.T, cases map[string]C, test func(t *testing.T, f *fake, locks *mutex.Client, c C)) {
	t.Helper()
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, f *fake, locks *mutex.Client) { test(t, f, locks, c) })
		})
	}
}

// holding runs a test of a holder that has just taken the lock.
func holding(t *testing.T, test func(t *testing.T, f *fake, l *mutex.Lock)) {
	t.Helper()
	bubble(t, func(t *testing.T, f *fake, locks *mutex.Client) { test(t, f, tenMinutes(t, locks)) })
}

// tenMinutes takes lock "a" for ten minutes, with a safety margin of one.
func tenMinutes(t testing.TB, c *mutex.Client) *mutex.Lock {
	t.Helper()
	return take(t, c, "a", mutex.AlertAfter(3*time.Minute), mutex.AutoUnlockAfter(10*time.Minute),
		mutex.SafetyMargin(time.Minute))
}

// passed returns the time since the bubble started.
func passed() time.Duration { return time.Since(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)) }

// ends expects a hold to end this long after the bubble started.
func ends(t testing.TB, l *mutex.Lock, after time.Duration) {
	t.Helper()
	<-l.Context().Done()
	if d := passed(); d != after {
		t.Errorf("its context ended after %v, want %v", d, after)
	}
}

func TestPartitionedHolderStopsBeforeTheAutoUnlock(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake, locks *mutex.Client) {
		f.latency.Store(int64(time.Second))
		l := take(t, locks, "a", mutex.AutoUnlockAfter(time.Minute), mutex.SafetyMargin(10*time.Second))
		f.away.Store(true)
		ends(t, l, 50*time.Second)
		<-l.Lost()
		lost, ok := errors.AsType[*mutex.LostError](context.Cause(l.Context()))
		if !ok || lost.Certain || !errors.Is(lost, mutex.ErrNotHeld) {
			t.Errorf("the cause is %v, want an uncertain loss", lost)
		}
		if at := read(t, f.etcd, "a").AutoUnlockAt; !at.After(time.Now()) {
			t.Errorf("the context ended at %v, the auto-unlock may be at %v", time.Now(), at)
		}
		if err := l.Alive(context.Background()); !errors.Is(err, mutex.ErrNotHeld) {
			t.Errorf("alive after the loss: %v", err)
		}
		f.away.Store(false)
		unlock(t, l) // it was held all the time
	})
}

func TestAliveMovesBothDeadlines(t *testing.T) {
	holding(t, func(t *testing.T, f *fake, l *mutex.Lock) {
		for range 3 {
			time.Sleep(8 * time.Minute)
			alive(t, l, "copied", "3 of 5")
			doc := read(t, f.etcd, "a")
			alert, unlock := time.Until(doc.AlertAt), time.Until(doc.AutoUnlockAt)
			own := time.Until(l.Deadline())
			if alert != 3*time.Minute || unlock != 10*time.Minute || own != 9*time.Minute {
				t.Errorf("alert in %v, auto-unlock in %v, the context ends in %v", alert, unlock, own)
			}
			if doc.Alive == nil || doc.Alive.Progress != "copied 3 of 5" || !doc.Alive.At.Equal(time.Now()) {
				t.Errorf("alive is %+v", doc.Alive)
			}
		}
		proctest.Must(t, l.AliveFor(t.Context(), 20*time.Minute, time.Hour, "the long part"))
		alive(t, l) // its own times are shorter, and no deadline moves back
		doc := read(t, f.etcd, "a")
		alert, unlock := time.Until(doc.AlertAt), time.Until(doc.AutoUnlockAt)
		if alert != 20*time.Minute || unlock != time.Hour {
			t.Errorf("alert in %v, auto-unlock in %v", alert, unlock)
		}
		err := l.AliveFor(t.Context(), time.Hour, 0)
		if err == nil || !strings.Contains(err.Error(), `alive "a": AutoUnlockAfter is 0s: it must be positive`) {
			t.Errorf("got %v", err)
		}
		ends(t, l, (3*8+59)*time.Minute)
	})
}

func TestClockSetBackMovesNoDeadline(t *testing.T) {
	asleep(t, func(t *testing.T, f *fake, l *mutex.Lock, sleep func(time.Duration)) {
		time.Sleep(5 * time.Minute)
		sleep(-time.Hour)
		alive(t, l)
		if d := time.Until(read(t, f.etcd, "a").AutoUnlockAt); d != 10*time.Minute {
			t.Errorf("auto-unlock in %v", d)
		}
		ends(t, l, 14*time.Minute)
	})
}

func TestAliveReportsAMissingDeadline(t *testing.T) {
	holding(t, func(t *testing.T, f *fake, l *mutex.Lock) {
		f.put("/mutexes/a/auto_unlock_at", "soon")
		err := l.Alive(context.Background())
		if err == nil || err.Error() != `alive "a": its auto_unlock_at was removed or made unreadable` {
			t.Errorf("got %v", err)
		}
	})
}

func TestHeartbeatEndsAtItsMaximumAndKeepsTheAlert(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake, locks *mutex.Client) {
		l := take(t, locks, "a", mutex.AlertAfter(10*time.Minute), mutex.AutoUnlockAfter(time.Minute),
			mutex.Heartbeat(time.Hour))
		start := time.Now()
		time.Sleep(5 * time.Minute)
		doc := read(t, f.etcd, "a")
		if d := time.Until(doc.AutoUnlockAt); d < 40*time.Second || d > time.Minute ||
			doc.AlertAt.After(doc.AutoUnlockAt) || doc.AlertAt.Before(time.Now()) ||
			!doc.HeartbeatUntil.Equal(start.Add(time.Hour)) {
			t.Errorf("auto-unlock in %v, alert in %v, heartbeats until %v", d, time.Until(doc.AlertAt),
				doc.HeartbeatUntil)
		}
		time.Sleep(6 * time.Minute)
		if d := read(t, f.etcd, "a").AlertAt.Sub(start); d != 10*time.Minute {
			t.Errorf("people are alerted after %v", d)
		}
		alive(t, l, "half done")
		time.Sleep(5 * time.Minute)
		if doc = read(t, f.etcd, "a"); doc.AlertAt.Before(time.Now()) || doc.Alive.Progress != "half done" {
			t.Errorf("after an alive: alert at %v, %+v", doc.AlertAt, doc.Alive)
		}
		<-l.Lost()
		end := read(t, f.etcd, "a").AutoUnlockAt.Sub(start)
		if d := passed(); d > time.Hour || d < 58*time.Minute || end > time.Hour {
			t.Errorf("held for %v, auto-unlock after %v", d, end)
		}
	})
}

func TestLockRetriesWithTheSameUUIDUntilSettled(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake, locks *mutex.Client) {
		f.loseAnswers.Store(2)
		l := take(t, locks, "a")
		if doc := read(t, f.etcd, "a"); doc.UUID != l.UUID() || doc.Token != l.Token() || l.Token() != 2 {
			t.Errorf("the handle says %s token %d, etcd has %s token %d", l.UUID(), l.Token(), doc.UUID, doc.Token)
		}
		if n := len(f.sent); n != 3 {
			t.Errorf("sent %d times", n)
		}
	})
}

func TestAttemptsLeaveTimeForOthers(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake, locks *mutex.Client) {
		f.away.Store(true)
		_, err := locks.Lock(within(t, 3*time.Second), "a")
		if !errors.Is(err, context.DeadlineExceeded) || passed() != 3*time.Second {
			t.Errorf("after %v: %v", passed(), err)
		}
		left := 3 * time.Second
		for i, at := range f.sent[1:] {
			gap := at.Sub(f.sent[i])
			if most := max(left/3, 100*time.Millisecond) + etcdretry.MaxBackoff; gap > most {
				t.Errorf("attempt %d came %v after the one before", i+1, gap)
			}
			left -= gap
		}
		if n := len(f.sent); n < 4 {
			t.Errorf("only %d attempts", n)
		}
	})
}

func TestUnansweredLockThatIsGivenUpIsCleanedUp(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake, locks *mutex.Client) {
		for name, take := range map[string]func(context.Context, string, ...mutex.Option) (*mutex.Lock, error){
			"Lock": locks.Lock, "TryLock": locks.TryLock,
		} {
			f.loseAnswers.Store(1000)
			if _, err := take(within(t, time.Second), name); !errors.Is(err, context.DeadlineExceeded) {
				t.Fatal(err)
			}
			f.loseAnswers.Store(0)
			time.Sleep(time.Minute)
			if doc := read(t, f.etcd, name); len(doc.Fields) > 0 {
				t.Errorf("the record of an acquisition that was given up stays: %+v", doc.Record)
			}
		}
	})
}

func TestCleanupEventuallyGivesUp(t *testing.T) {
	var log lines
	bubbleWith(t, log.options(), func(t *testing.T, f *fake, locks *mutex.Client) {
		f.away.Store(true)
		locks.Lock(within(t, time.Second), "a")
		for want, after := range []time.Duration{protocol.CancelledTTL - time.Minute, 2 * time.Minute} {
			time.Sleep(after)
			synctest.Wait()
			if told := log.with("not cleaned up"); len(told) != want {
				t.Errorf("it is given up in %q, want %d lines", told, want)
			}
		}
	})
}

func TestWaitThroughALongOutageGetsFreshDeadlines(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake, locks *mutex.Client) {
		f.away.Store(true)
		got := waits(t, locks, mutex.AutoUnlockAfter(time.Minute))
		time.Sleep(50 * time.Minute)
		f.away.Store(false)
		<-got
		if d := time.Until(read(t, f.etcd, "a").AutoUnlockAt); d < 30*time.Second {
			t.Errorf("auto-unlock in %v", d)
		}
	})
}

func TestCloseReportsUnfinishedCleanups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		locks, err := mutex.New(f.client(), mutex.Options{})
		proctest.Must(t, err)
		l, _ := locks.TryLock(t.Context(), "a")
		f.away.Store(true)
		if l.Unlock() == nil {
			t.Error("unlocked without etcd")
		}
		err = locks.Close()
		if err == nil || !strings.Contains(err.Error(), "the outcome of 1 requests is unknown") {
			t.Errorf("close: %v", err)
		}
		if d := passed(); d != 2*15*time.Second {
			t.Errorf("unlock and close took %v", d)
		}
	})
}

func TestCleanupsAreLimitedInNumber(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake, locks *mutex.Client) {
		f.loseAnswers.Store(1 << 30)
		ctx := within(t, time.Second)
		var calls sync.WaitGroup
		for i := range 100 {
			calls.Go(func() { _, _ = locks.Lock(ctx, fmt.Sprint(i)) })
		}
		calls.Wait()
		before := f.sendings()
		time.Sleep(time.Minute)
		if n := f.sendings() - before; n < 10 || n > 500 {
			t.Errorf("%d requests in a minute to clean up after 100 calls", n)
		}
		f.loseAnswers.Store(0)
	})
}
