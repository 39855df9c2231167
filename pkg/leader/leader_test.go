package leader_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"

	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/pkg/inspect"
	"github.com/clustermutex/unlocker/pkg/leader"
	"github.com/clustermutex/unlocker/pkg/locktest"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

func TestMain(m *testing.M) { etcdtest.Main(m) }

// onBoth runs a test with a real etcd and with one in memory, and looks for goroutines that are left.
func onBoth(t *testing.T, test func(t *testing.T, s *locktest.Server)) {
	t.Run("real", func(t *testing.T) {
		before := goleak.IgnoreCurrent()
		t.Run("", func(t *testing.T) { test(t, locktest.New(t)) })
		goleak.VerifyNone(t, before)
	})
	t.Run("in memory", func(t *testing.T) { inMemory(t, test) })
}

// inMemory runs a test in which time passes at once.
func inMemory(t *testing.T, test func(t *testing.T, s *locktest.Server)) {
	synctest.Test(t, func(t *testing.T) { test(t, locktest.NewInMemory(t)) })
}

func inspector(t testing.TB, etcd *clientv3.Client) *inspect.Inspector {
	t.Helper()
	s, err := inspect.New(etcd, inspect.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func current(t testing.TB, s *inspect.Inspector) *metadata.Record {
	t.Helper()
	r, err := leader.Current(t.Context(), s, "scheduler")
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestLeaderIsSeenUntilItResigns(t *testing.T) {
	onBoth(t, func(t *testing.T, s *locktest.Server) {
		st := inspector(t, s.Etcd())
		if r := current(t, st); r != nil {
			t.Errorf("nobody stood, but %+v leads", r)
		}
		candidates := s.Client(mutex.Options{Owner: "scheduler", Hostname: "host-1"})
		err := leader.Lead(t.Context(), candidates, "scheduler", leader.Options{
			Address: "10.0.0.7:80", Lock: []mutex.Option{mutex.Attribute("zone", "north")},
		}, func(ctx context.Context) error {
			r := current(t, st)
			if r == nil || r.Owner != "scheduler" || r.Hostname != "host-1" || leader.Address(r) != "10.0.0.7:80" ||
				r.Attributes["zone"] != "north" || r.Token != mutex.FromContext(ctx).Token() || r.LockedAt.IsZero() {
				t.Errorf("the leader is %+v", r)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		if r := current(t, st); r != nil {
			t.Errorf("after it resigned %+v leads", r)
		}
		if a := leader.Address(nil); a != "" {
			t.Errorf("nobody is at %q", a)
		}
	})
}

func TestLeadersFollowEachOtherInView(t *testing.T) {
	onBoth(t, func(t *testing.T, s *locktest.Server) {
		seen := make(chan string)
		ctx, stop := context.WithCancel(t.Context())
		observed := make(chan struct{})
		go func() {
			defer close(observed)
			for r, err := range leader.Observe(ctx, inspector(t, s.Etcd()), "scheduler") {
				switch {
				case err != nil:
					seen <- err.Error()
				case r == nil:
					seen <- "nobody"
				default:
					seen <- leader.Address(r)
				}
			}
		}()
		want := func(address string) {
			t.Helper()
			for got := <-seen; got != address; got = <-seen {
				if got != "nobody" {
					t.Fatalf("%s was seen before %s", got, address)
				}
			}
		}
		want("nobody")
		candidates := s.Client(mutex.Options{Owner: "scheduler"})
		first, err := leader.Campaign(t.Context(), candidates, "scheduler", leader.Options{Address: "first"})
		if err != nil {
			t.Fatal(err)
		}
		want("first")
		second := make(chan *mutex.Lock)
		go func() {
			l, err := leader.Campaign(t.Context(), candidates, "scheduler", leader.Options{Address: "second"})
			if err != nil {
				t.Error(err)
			}
			second <- l
		}()
		s.AwaitWaiters("scheduler", 1)
		if err := first.Alive(t.Context(), "which is no news"); err != nil {
			t.Error(err)
		}
		if err := first.Unlock(); err != nil {
			t.Error(err)
		}
		want("second")
		if err := (<-second).Unlock(); err != nil {
			t.Error(err)
		}
		want("nobody")
		stop()
		<-observed
	})
}

// How the watch outlives that a real etcd is away is tested in internal/lockstore.
func TestObserverTellsThatItDoesNotKnow(t *testing.T) {
	inMemory(t, func(t *testing.T, s *locktest.Server) {
		s.Hold("scheduler")
		seen := make(chan error)
		ctx, stop := context.WithCancel(t.Context())
		observed := make(chan struct{})
		go func() {
			defer close(observed)
			for r, err := range leader.Observe(ctx, inspector(t, s.Etcd()), "scheduler") {
				if (r == nil) == (err == nil) {
					t.Errorf("%+v, %v", r, err)
				}
				select {
				case seen <- err:
				case <-ctx.Done():
				}
			}
		}()
		if err := <-seen; err != nil {
			t.Fatal(err)
		}
		s.Cut()
		if err := <-seen; err == nil {
			t.Error("the same leader came again")
		}
		s.Heal()
		for <-seen != nil { // until the leader is known again
		}
		stop()
		<-observed
	})
}

func TestLeaderThatIsDeposedStandsAgain(t *testing.T) {
	onBoth(t, func(t *testing.T, s *locktest.Server) {
		candidates := s.Client(mutex.Options{Owner: "scheduler"})
		terms := 0
		lead := func(ctx context.Context) error {
			if terms++; terms == 2 {
				return errors.New("enough")
			}
			s.ForceUnlock("scheduler", "a new leader is wanted")
			<-ctx.Done()
			lost, isLost := errors.AsType[*mutex.LostError](context.Cause(ctx))
			if !isLost || !strings.Contains(lost.Error(), "a new leader is wanted") {
				t.Errorf("it ended with %v", context.Cause(ctx))
			}
			return context.Cause(ctx)
		}
		err := leader.Lead(t.Context(), candidates, "scheduler", leader.Options{}, lead)
		if err == nil || err.Error() != "enough" || terms != 2 {
			t.Errorf("%d terms, %v", terms, err)
		}
		s.AssertNothingLeft()
	})
}

func TestLeadEndsWithItsContext(t *testing.T) {
	onBoth(t, func(t *testing.T, s *locktest.Server) {
		candidates := s.Client(mutex.Options{Owner: "scheduler"})
		ctx, cancel := context.WithCancel(t.Context())
		err := leader.Lead(ctx, candidates, "scheduler", leader.Options{}, func(ctx context.Context) error {
			cancel()
			<-ctx.Done()
			return context.Cause(ctx)
		})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("the leader's error is %v", err)
		}
		s.AssertNothingLeft()

		s.Hold("scheduler")
		ctx, cancel = context.WithCancel(t.Context())
		ended := make(chan error)
		go func() {
			ended <- leader.Lead(ctx, candidates, "scheduler", leader.Options{}, func(context.Context) error {
				t.Error("it leads beside another")
				return nil
			})
		}()
		s.AwaitWaiters("scheduler", 1)
		cancel()
		held, isHeld := errors.AsType[*mutex.HeldError](<-ended)
		if !isHeld || held.Holder.Owner != "stranger" {
			t.Errorf("the candidate's error is %v", held)
		}
	})
}

func TestLeaderLeadsAsLongAsItIsHealthy(t *testing.T) {
	inMemory(t, func(t *testing.T, s *locktest.Server) {
		var log bytes.Buffer
		candidates := s.Client(mutex.Options{Owner: "scheduler", Logger: slog.New(slog.NewTextHandler(&log, nil))})
		var sick atomic.Bool
		l, err := leader.Campaign(t.Context(), candidates, "scheduler", leader.Options{
			Life: time.Minute, Check: func(context.Context) error {
				if sick.Load() {
					return errors.New("the disk is full")
				}
				return nil
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		if l.Context().Err() != nil {
			t.Fatalf("a healthy leader was lost: %v", context.Cause(l.Context()))
		}
		r := current(t, inspector(t, s.Etcd()))
		if left := time.Until(r.AutoUnlockAt); left < 40*time.Second || left > time.Minute {
			t.Errorf("its record has %v left", left)
		}
		if r.AlertAt.Before(r.AutoUnlockAt) {
			t.Errorf("it is alerted about at %v, before %v", r.AlertAt, r.AutoUnlockAt)
		}
		sick.Store(true)
		<-l.Lost()
		if over := time.Until(r.AutoUnlockAt); over < 0 || over > 30*time.Second {
			t.Errorf("its context ended %v before the deadline of its record", over)
		}
		if err := l.Unlock(); err != nil { // it gives back what it had until then
			t.Errorf("unlock: %v", err)
		}
		s.AssertNothingLeft()
		synctest.Wait() // for the goroutine that logs
		if !strings.Contains(log.String(), "the disk is full") {
			t.Errorf("the log is %s", log.String())
		}
	})
}

func TestLeaderWhoseCheckHangsIsReplaced(t *testing.T) {
	inMemory(t, func(t *testing.T, s *locktest.Server) {
		candidates := s.Client(mutex.Options{Owner: "scheduler"})
		var terms atomic.Int32
		hangs := func(ctx context.Context) error {
			if terms.Load() == 1 {
				<-ctx.Done()
				time.Sleep(time.Hour) // it does not heed its context
			}
			return nil
		}
		began := time.Now()
		err := leader.Lead(t.Context(), candidates, "scheduler", leader.Options{Life: time.Minute, Check: hangs},
			func(ctx context.Context) error {
				if terms.Add(1) == 2 {
					return nil
				}
				<-ctx.Done()
				return nil
			})
		if took := time.Since(began); err != nil || terms.Load() != 2 || took > time.Minute {
			t.Errorf("%d terms in %v, %v", terms.Load(), took, err)
		}
		time.Sleep(2 * time.Hour) // until the check is over
	})
}

func TestLeadershipOutlivesAnOutageShorterThanItsLife(t *testing.T) {
	inMemory(t, func(t *testing.T, s *locktest.Server) {
		candidates := s.Client(mutex.Options{Owner: "scheduler"})
		l, err := leader.Campaign(t.Context(), candidates, "scheduler", leader.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Unlock()
		for range 5 {
			s.Cut()
			time.Sleep(leader.DefaultLife / 2)
			s.Heal()
			time.Sleep(leader.DefaultLife / 2)
		}
		if l.Context().Err() != nil {
			t.Errorf("it was lost: %v", context.Cause(l.Context()))
		}
		s.Cut()
		<-l.Lost()
		s.Heal()
	})
}

func TestCampaignRefusesBadOptions(t *testing.T) {
	inMemory(t, func(t *testing.T, s *locktest.Server) {
		candidates := s.Client(mutex.Options{})
		for _, o := range []leader.Options{{Life: -1}, {Address: strings.Repeat("x", metadata.MaxTextBytes+1)}} {
			if _, err := leader.Campaign(t.Context(), candidates, "scheduler", o); err == nil {
				t.Errorf("%+v was accepted", o)
			}
		}
		s.AssertFree("scheduler")
	})
}
