package mutex_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

// The tests of this file run in a bubble with a clock of its own: hours pass at once, and a goroutine that is left
// behind when the bubble ends fails the test.

func bubble(t *testing.T, test func(t *testing.T, f *fake, locks *mutex.Client)) {
	t.Helper()
	bubbleWith(t, mutex.Options{}, test)
}

func bubbleWith(t *testing.T, o mutex.Options, test func(t *testing.T, f *fake, locks *mutex.Client)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		c := newClient(t, f.client(), o)
		t.Cleanup(func() { f.away.Store(false) })
		test(t, f, c)
	})
}

func TestHolderThatIsCutOffStopsBeforeTheAutoUnlock(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake, locks *mutex.Client) {
		f.latency.Store(int64(time.Second))
		start := time.Now()
		l := take(t, locks, "a", mutex.AutoUnlockAfter(time.Minute), mutex.SafetyMargin(10*time.Second))
		f.away.Store(true)

		<-l.Context().Done()
		if d := time.Since(start); d != 50*time.Second {
			t.Errorf("the context ended %v after the acquisition was sent, want 50s", d)
		}
		<-l.Lost()
		lost, ok := errors.AsType[*mutex.LostError](context.Cause(l.Context()))
		if !ok || lost.Certain || !errors.Is(lost, mutex.ErrNotHeld) {
			t.Errorf("the cause is %v, want an uncertain loss", lost)
		}
		if at := read(t, f.operator, "a").AutoUnlockAt; !at.After(time.Now()) {
			t.Errorf("the context ended at %v, the auto-unlock may be at %v", time.Now(), at)
		}
		if err := l.Alive(context.Background()); !errors.Is(err, mutex.ErrNotHeld) {
			t.Errorf("alive after the loss: %v", err)
		}
		f.away.Store(false)
		if err := l.Unlock(); err != nil {
			t.Errorf("it was held all the time, yet unlock says %v", err)
		}
	})
}

func TestAliveMovesBothDeadlines(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake, locks *mutex.Client) {
		l := take(t, locks, "a", mutex.AlertAfter(time.Minute), mutex.AutoUnlockAfter(10*time.Minute),
			mutex.SafetyMargin(time.Minute))
		for range 3 {
			time.Sleep(8 * time.Minute)
			alive(t, l, "copied", "3 of 5")
			doc := read(t, f.operator, "a")
			if d := time.Until(doc.AlertAt); d != time.Minute {
				t.Errorf("people are alerted in %v", d)
			}
			if d := time.Until(doc.AutoUnlockAt); d != 10*time.Minute {
				t.Errorf("auto-unlock in %v", d)
			}
			if doc.Alive == nil || doc.Alive.Progress != "copied 3 of 5" || !doc.Alive.At.Equal(time.Now()) {
				t.Errorf("alive is %+v", doc.Alive)
			}
			if d := time.Until(l.Deadline()); d != 9*time.Minute {
				t.Errorf("the context ends in %v", d)
			}
		}
		last := time.Now()
		<-l.Lost()
		if d := time.Since(last); d != 9*time.Minute {
			t.Errorf("the context ended %v after the last alive", d)
		}
		l.Unlock()
	})
}

func TestAliveWhoseAnswerIsLostCountsFromItsFirstSending(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake, locks *mutex.Client) {
		l := take(t, locks, "a", mutex.AutoUnlockAfter(10*time.Minute), mutex.SafetyMargin(time.Minute))
		time.Sleep(5 * time.Minute)
		f.loseAnswers.Store(1)
		start := time.Now()
		alive(t, l)
		if time.Since(start) < 2*time.Second {
			t.Error("no answer was lost")
		}
		if d := l.Deadline().Sub(start); d != 9*time.Minute {
			t.Errorf("the context ends %v after the first sending", d)
		}
		l.Unlock()
	})
}

func TestAliveWithoutAnAnswerLeavesTheDeadlineWhereItWas(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake, locks *mutex.Client) {
		start := time.Now()
		l := take(t, locks, "a", mutex.AutoUnlockAfter(10*time.Minute), mutex.SafetyMargin(time.Minute))
		f.away.Store(true)
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		err := l.Alive(ctx)
		if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, mutex.ErrNotHeld) {
			t.Errorf("alive: %v", err)
		}
		if l.Context().Err() != nil {
			t.Error("a lost answer ended the hold")
		}
		<-l.Lost()
		if d := time.Since(start); d != 9*time.Minute {
			t.Errorf("the context ended after %v", d)
		}
		f.away.Store(false)
		l.Unlock()
	})
}

func TestClockThatIsSetBackMovesNoDeadlineBack(t *testing.T) {
	var wrong atomic.Int64
	o := mutex.Options{Now: func() time.Time { return time.Now().Add(time.Duration(wrong.Load())) }}
	bubbleWith(t, o, func(t *testing.T, f *fake, locks *mutex.Client) {
		l := take(t, locks, "a", mutex.AutoUnlockAfter(10*time.Minute), mutex.SafetyMargin(time.Minute))
		time.Sleep(5 * time.Minute)
		wrong.Store(int64(-time.Hour))
		alive(t, l)
		if d := time.Until(read(t, f.operator, "a").AutoUnlockAt); d != 10*time.Minute {
			t.Errorf("auto-unlock in %v", d)
		}
		if d := time.Until(l.Deadline()); d != 9*time.Minute {
			t.Errorf("the context ends in %v", d)
		}
		l.Unlock()
	})
}

func TestAliveTellsThatTheDeadlineIsGone(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake, locks *mutex.Client) {
		l := take(t, locks, "a")
		f.put("/mutexes/a/auto_unlock_at", "soon")
		err := l.Alive(context.Background())
		if err == nil || err.Error() != `alive "a": somebody removed its auto_unlock_at or made it unreadable` {
			t.Errorf("got %v", err)
		}
		l.Unlock()
	})
}

func TestHeartbeatHoldsUntilTheMaximumAndDoesNotPutOffTheAlert(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake, locks *mutex.Client) {
		start := time.Now()
		l := take(t, locks, "a", mutex.AlertAfter(10*time.Minute), mutex.AutoUnlockAfter(time.Minute),
			mutex.Heartbeat(time.Hour))
		time.Sleep(5 * time.Minute)
		doc := read(t, f.operator, "a")
		if d := time.Until(doc.AutoUnlockAt); d < 40*time.Second || d > time.Minute {
			t.Errorf("auto-unlock in %v", d)
		}
		if doc.AlertAt.After(doc.AutoUnlockAt) || doc.AlertAt.Before(time.Now()) {
			t.Errorf("alert at %v, auto-unlock at %v", doc.AlertAt, doc.AutoUnlockAt)
		}
		time.Sleep(6 * time.Minute)
		if d := read(t, f.operator, "a").AlertAt.Sub(start); d != 10*time.Minute {
			t.Errorf("people are alerted after %v", d)
		}
		alive(t, l, "half done")
		time.Sleep(5 * time.Minute)
		if doc = read(t, f.operator, "a"); doc.AlertAt.Before(time.Now()) || doc.Alive.Progress != "half done" {
			t.Errorf("after an alive: alert at %v, %+v", doc.AlertAt, doc.Alive)
		}
		<-l.Lost()
		if d := time.Since(start); d > time.Hour || d < 58*time.Minute {
			t.Errorf("held for %v", d)
		}
		if end := read(t, f.operator, "a").AutoUnlockAt.Sub(start); end > time.Hour {
			t.Errorf("auto-unlock only after %v", end)
		}
		l.Unlock()
	})
}

func TestLockRetriesWithTheSameUUIDUntilItKnows(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake, locks *mutex.Client) {
		f.loseAnswers.Store(2)
		l, err := locks.Lock(context.Background(), "a")
		if err != nil {
			t.Fatal(err)
		}
		if doc := read(t, f.operator, "a"); doc.UUID != l.UUID() || doc.Token != l.Token() || l.Token() != 2 {
			t.Errorf("the handle says %s token %d, etcd has %s token %d", l.UUID(), l.Token(), doc.UUID, doc.Token)
		}
		if n := len(f.sent); n != 3 {
			t.Errorf("sent %d times", n)
		}
		l.Unlock()
	})
}

func TestAttemptsLeaveTimeForOthers(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake, locks *mutex.Client) {
		f.away.Store(true)
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
		defer cancel()
		start := time.Now()
		_, err := locks.Lock(ctx, "a")
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != 3*time.Second {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
		left := 3 * time.Second
		for i, at := range f.sent[1:] {
			gap := at.Sub(f.sent[i])
			if most := max(left/3, 100*time.Millisecond) + mutex.MaxRetryDelay; gap > most {
				t.Errorf("attempt %d came %v after the one before", i+1, gap)
			}
			left -= gap
		}
		if n := len(f.sent); n < 4 {
			t.Errorf("only %d attempts", n)
		}
	})
}

func TestLockGivenUpWithoutAnAnswerIsCleanedUp(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake, locks *mutex.Client) {
		for name, take := range map[string]func(context.Context, string, ...mutex.Option) (*mutex.Lock, error){
			"Lock": locks.Lock, "TryLock": locks.TryLock,
		} {
			f.loseAnswers.Store(1000)
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			_, err := take(ctx, name)
			cancel()
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Fatal(err)
			}
			f.loseAnswers.Store(0)
			time.Sleep(time.Minute)
			if doc := read(t, f.operator, name); len(doc.Fields) > 0 {
				t.Errorf("the record of an acquisition that was given up stays: %+v", doc.Record)
			}
		}
		f.away.Store(true)
	})
}

func TestCleanUpIsGivenUpInTheEnd(t *testing.T) {
	var log lines
	o := mutex.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))}
	bubbleWith(t, o, func(t *testing.T, f *fake, locks *mutex.Client) {
		f.away.Store(true)
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		locks.Lock(ctx, "a")
		for want, after := range []time.Duration{protocol.CancelledTTL - time.Minute, 2 * time.Minute} {
			time.Sleep(after)
			synctest.Wait()
			if told, _ := log.with("not cleaned up"); len(told) != want {
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
		l := <-got
		if d := time.Until(read(t, f.operator, "a").AutoUnlockAt); d < 30*time.Second {
			t.Errorf("auto-unlock in %v", d)
		}
		l.Unlock()
	})
}

func TestCloseTellsWhatItCouldNotFinish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		locks, err := mutex.New(f.client(), mutex.Options{})
		if err != nil {
			t.Fatal(err)
		}
		l := take(t, locks, "a")
		f.away.Store(true)
		if l.Unlock() == nil {
			t.Error("unlocked without etcd")
		}
		start := time.Now()
		err = locks.Close()
		if err == nil || !strings.Contains(err.Error(), "the outcome of 1 requests is unknown") {
			t.Errorf("close: %v", err)
		}
		if d := time.Since(start); d != 15*time.Second {
			t.Errorf("close took %v", d)
		}
	})
}

func TestWaitEndsWithItsContextWhileEtcdIsSilent(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake, locks *mutex.Client) {
		take(t, locks, "a", mutex.AutoUnlockAfter(time.Hour))
		time.AfterFunc(5*time.Second, func() { f.away.Store(true) })
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := locks.Lock(ctx, "a")
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(began) > 2*time.Minute {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
	})
}

func TestFewCleanUpsAreUnderWayAtATime(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake, locks *mutex.Client) {
		f.loseAnswers.Store(1 << 30)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
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
