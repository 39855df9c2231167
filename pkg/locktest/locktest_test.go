package locktest_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/clustermutex/unlocker/internal/testkit/proctest"
	"github.com/clustermutex/unlocker/pkg/locktest"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

// onBoth runs a test with a real etcd and with one in memory, and looks for goroutines that are left.
func onBoth(t *testing.T, test func(t *testing.T, s *locktest.Server)) {
	t.Run("real", func(t *testing.T) {
		before := goleak.IgnoreCurrent()
		t.Run("", func(t *testing.T) { test(t, locktest.New(t)) })
		goleak.VerifyNone(t, before)
	})
	t.Run("in memory", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { test(t, locktest.NewInMemory(t)) })
	})
}

func take(t *testing.T, c *mutex.Client, name string, opts ...mutex.Option) *mutex.Lock {
	t.Helper()
	l, err := c.TryLock(context.Background(), name, opts...)
	proctest.Must(t, err)
	return l
}

func TestAnotherHolderDies(t *testing.T) {
	onBoth(t, func(t *testing.T, s *locktest.Server) {
		locks := s.Client(mutex.Options{Owner: "billing"})
		s.Hold("a", mutex.Purpose("dinner"))
		_, err := locks.TryLock(t.Context(), "a")
		held, isHeld := errors.AsType[*mutex.HeldError](err)
		if !isHeld || held.Holder.Owner != "stranger" || held.Holder.Hostname != "elsewhere" ||
			held.Holder.Purpose != "dinner" {
			t.Fatalf("the error is %v", err)
		}
		done := make(chan bool)
		got := make(chan error)
		go func() { got <- locks.Do(context.Background(), "a", func(context.Context) error { <-done; return nil }) }()
		s.AwaitWaiters("a", 1)
		if w := s.Waiters("a"); w[0].Owner != "billing" {
			t.Errorf("the waiter is %+v", w[0])
		}
		s.Expire("a")
		if d := s.AwaitHeld("a"); d.Owner != "billing" {
			t.Errorf("the holder is %s", d.Owner)
		}
		close(done)
		s.AwaitFree("a")
		if err := <-got; err != nil {
			t.Error(err)
		}
		s.AssertFree("a")
		s.AssertNothingLeft()
	})
}

func TestLockIsLostDuringWork(t *testing.T) {
	onBoth(t, func(t *testing.T, s *locktest.Server) {
		locks := s.Client(mutex.Options{})
		for how, c := range map[string]struct {
			remove func()
			reason mutex.LostReason
			says   string
		}{
			"by a person":    {func() { s.ForceUnlock("a", "wrong month") }, mutex.LostReasonForced, "wrong month"},
			"by an unlocker": {func() { s.Expire("a") }, mutex.LostReasonAutoUnlocked, "the test expired it"},
			"to a witness": {func() { s.RemoveAbandoned("a", "it was killed") }, mutex.LostReasonAbandoned,
				"it was killed"},
		} {
			var lost *mutex.LostError
			for range 20 { // a holder on a busy machine does not wait for long until it has read who it was
				l := take(t, locks, "a", mutex.AutoUnlockAfter(time.Hour))
				if d := s.AssertHeld("a"); d.UUID != l.UUID() {
					t.Errorf("%s: the holder is %s", how, d.UUID)
				}
				c.remove()
				<-l.Context().Done()
				if lost, _ = context.Cause(l.Context()).(*mutex.LostError); lost == nil ||
					lost.Reason() != mutex.LostReasonRemoved {
					break
				}
			}
			if lost == nil || lost.Reason() != c.reason || !strings.Contains(lost.Error(), c.says) {
				t.Errorf("lost %s: %v", how, lost)
			}
			s.AssertFree("a")
		}
	})
}

func TestEtcdIsUnreachable(t *testing.T) {
	onBoth(t, func(t *testing.T, s *locktest.Server) {
		locks := s.Client(mutex.Options{RequestTimeout: time.Second})
		l := take(t, locks, "a", mutex.AutoUnlockAfter(time.Second))
		s.Disconnect()
		if _, err := locks.TryLock(t.Context(), "b"); err == nil || errors.Is(err, mutex.ErrNotHeld) {
			t.Errorf("without etcd: %v", err)
		}
		<-l.Lost()
		if lost, _ := context.Cause(l.Context()).(*mutex.LostError); lost == nil ||
			lost.Reason() != mutex.LostReasonTime {
			t.Errorf("the cause is %v", context.Cause(l.Context()))
		}
		s.AssertHeld("a") // for others, who have to wait for its auto-unlock
		s.Hold("c")
		s.Reconnect()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := locks.Do(ctx, "b", func(context.Context) error { return nil }); err != nil {
			t.Error(err)
		}
	})
}

func TestPrefixesSeparateLocks(t *testing.T) {
	onBoth(t, func(t *testing.T, s *locktest.Server) {
		other := s.WithPrefix("/other")
		take(t, other.Client(mutex.Options{}), "a")
		s.AssertFree("a")
		if d := other.AssertHeld("a"); d.Token == 0 {
			t.Error("no token")
		}
	})
}

func TestOperatorAsksTheHolderAndGivesItTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := locktest.NewInMemory(t)
		l := take(t, s.Client(mutex.Options{}), "invoices", mutex.AutoUnlockAfter(10*time.Minute))
		time.Sleep(time.Second)
		before := l.Deadline()
		s.GiveMoreTime("invoices", time.Hour)
		s.GiveMoreTime("invoices", time.Hour)
		s.AskToFinish("invoices", "ann", "the deploy waits")
		s.AskToFinish("invoices", "bob", "so does mine")
		<-l.FinishRequested()
		synctest.Wait()
		if r := l.FinishRequest(); r.By != "bob" || r.Reason != "so does mine" {
			t.Errorf("the request is %+v", r)
		}
		if d := l.Deadline().Sub(before); d < 2*time.Hour || d > 2*time.Hour+2*time.Second || l.MoreTime() == nil {
			t.Errorf("it was given %v by %+v", d, l.MoreTime())
		}
		l.Unlock()
	})
}

func TestHolderDisputesItsDeath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &witness{TB: t}
		s := locktest.NewInMemory(w)
		l := take(t, s.Client(mutex.Options{}), "a", mutex.AutoUnlockAfter(10*time.Minute))
		s.GiveMoreTime("a", time.Hour)
		s.ProveDead("a", "it is said to have been killed")
		time.Sleep(time.Minute)
		proctest.Must(t, l.Alive(t.Context()))
		said := w.says(func() { s.RemoveAbandoned("a", "it was killed") })
		if !strings.Contains(said, `the death of the holder of "a" is not proven`) {
			t.Errorf("said %q", said)
		}
		l.Unlock()
	})
}

// witness is a test that is to fail.
type witness struct {
	testing.TB
	said []string
}

// says returns what f has it say.
func (w *witness) says(f func()) string {
	w.said = nil
	var done sync.WaitGroup
	done.Go(f)
	done.Wait()
	return strings.Join(w.said, "\n")
}

func (w *witness) Errorf(format string, args ...any) {
	w.said = append(w.said, fmt.Sprintf(format, args...))
}
func (w *witness) Error(args ...any)                 { w.said = append(w.said, fmt.Sprint(args...)) }
func (w *witness) Fatalf(format string, args ...any) { w.Errorf(format, args...); runtime.Goexit() }
func (w *witness) Fatal(args ...any)                 { w.Error(args...); runtime.Goexit() }
func (w *witness) FailNow()                          { runtime.Goexit() }

func TestAssertionsCanFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &witness{TB: t}
		s := locktest.NewInMemory(w)
		s.Hold("held", mutex.Purpose("dinner"))
		locks := s.Client(mutex.Options{})
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		go locks.Lock(ctx, "held")
		s.AwaitWaiters("held", 1)
		for name, c := range map[string]struct {
			do   func()
			says string
		}{
			"free":      {func() { s.AssertHeld("free") }, `lock "free" is free`},
			"held":      {func() { s.AssertFree("held") }, `lock "held" is held by stranger on elsewhere`},
			"purpose":   {func() { s.AssertFree("held") }, `for "dinner"; alert in`},
			"left":      {func() { s.AssertNothingLeft() }, "minutes; at\n\t"},
			"waits":     {func() { s.AssertNothingLeft() }, `a waiter for lock "held" is left`},
			"twice":     {func() { s.Hold("held") }, `lock "held" is held by stranger`},
			"force":     {func() { s.ForceUnlock("free", "x") }, `lock "free" is free`},
			"ask":       {func() { s.AskToFinish("free", "ann", "x") }, `lock "free" is free`},
			"unasked":   {func() { s.AskToFinish("held", "ann", "") }, "a reason is needed"},
			"extend":    {func() { s.GiveMoreTime("free", time.Hour) }, `lock "free" is free`},
			"no time":   {func() { s.GiveMoreTime("held", 0) }, "must be at least a second"},
			"expire":    {func() { s.Expire("free") }, `lock "free" is free`},
			"dead":      {func() { s.ProveDead("free", "x") }, `lock "free" is free`},
			"abandon":   {func() { s.RemoveAbandoned("free", "x") }, `lock "free" is free`},
			"nobody":    {func() { s.AwaitHeld("free") }, `waited 30s in vain for lock "free" to be held`},
			"somebody":  {func() { s.AwaitFree("held") }, `waited 30s in vain for lock "held" to be free`},
			"too few":   {func() { s.AwaitWaiters("held", 2) }, `2 waiters for lock "held"`},
			"endpoint":  {func() { s.Endpoint() }, "an etcd in memory has no endpoint"},
			"options":   {func() { s.Client(mutex.Options{RequestTimeout: -1}) }, "RequestTimeout is -1ns"},
			"no prefix": {func() { s.WithPrefix("/") }, "the lock prefix is empty"},
		} {
			if said := w.says(c.do); !strings.Contains(said, c.says) {
				t.Errorf("%s: said %q, want %q", name, said, c.says)
			}
		}
	})
}
