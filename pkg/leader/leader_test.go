package leader_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
	"github.com/clustermutex/unlocker/pkg/inspect"
	"github.com/clustermutex/unlocker/pkg/leader"
	"github.com/clustermutex/unlocker/pkg/locktest"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

func TestMain(m *testing.M) { etcdtest.Main(m) }

// inMemory runs a test in which time passes at once.
func inMemory(t *testing.T, test func(t *testing.T, s *locktest.Server)) {
	synctest.Test(t, func(t *testing.T) { test(t, locktest.NewInMemory(t)) })
}

func campaign(t testing.TB, c *mutex.Client, o leader.Options) *mutex.Lock {
	t.Helper()
	l, err := leader.Campaign(t.Context(), c, "scheduler", o)
	proctest.Must(t, err)
	return l
}

// observe tells what an observer sees until the function that it returns is called.
func observe(t testing.TB, s *locktest.Server, tell func(*metadata.Record, error)) (stop func()) {
	t.Helper()
	st := inspector(t, s.Etcd())
	ctx, cancel := context.WithCancel(t.Context())
	var observer sync.WaitGroup
	observer.Go(func() {
		for r, err := range leader.Observe(ctx, st, "scheduler") {
			tell(r, err)
		}
	})
	return func() { cancel(); observer.Wait() }
}

func inspector(t testing.TB, etcd *clientv3.Client) *inspect.Inspector {
	t.Helper()
	s, err := inspect.New(etcd, inspect.Options{})
	proctest.Must(t, err)
	return s
}

func current(t testing.TB, s *inspect.Inspector) *metadata.Record {
	t.Helper()
	r, err := leader.Current(t.Context(), s, "scheduler")
	proctest.Must(t, err)
	return r
}

func TestLeaderIsSeenUntilItResigns(t *testing.T) {
	inMemory(t, func(t *testing.T, s *locktest.Server) {
		st := inspector(t, s.Etcd())
		for r, err := range leader.Observe(t.Context(), st, "scheduler") {
			if r != nil || err != nil {
				t.Errorf("without candidates, %+v leads, %v", r, err)
			}
			break
		}
		c := s.Client(mutex.Options{Owner: "scheduler", Hostname: "host-1"})
		o := leader.Options{Address: "10.0.0.7:80", LockOptions: []mutex.Option{mutex.Attribute("zone", "north")}}
		err := leader.Lead(t.Context(), c, "scheduler", o, func(ctx context.Context) error {
			r := current(t, st)
			if r == nil || r.Owner != "scheduler" || r.Hostname != "host-1" || leader.Address(r) != "10.0.0.7:80" ||
				r.Attributes["zone"] != "north" || r.Token != mutex.FromContext(ctx).Token() || r.LockedAt.IsZero() {
				t.Errorf("the leader is %+v", r)
			}
			return nil
		})
		proctest.Must(t, err)
		if r := current(t, st); r != nil || leader.Address(r) != "" {
			t.Errorf("after it resigned %+v leads at %q", r, leader.Address(r))
		}
	})
}

func TestObserverSeesSuccessiveLeaders(t *testing.T) {
	inMemory(t, func(t *testing.T, s *locktest.Server) {
		seen := make(chan string)
		stop := observe(t, s, func(r *metadata.Record, err error) {
			switch {
			case err != nil:
				seen <- err.Error()
			case r == nil:
				seen <- "nobody"
			default:
				seen <- leader.Address(r)
			}
		})
		want := func(address string) {
			t.Helper()
			for got := <-seen; got != address; got = <-seen {
				if got != "nobody" {
					t.Fatalf("%s was seen before %s", got, address)
				}
			}
		}
		want("nobody")
		c := s.Client(mutex.Options{})
		first := campaign(t, c, leader.Options{Address: "first"})
		want("first")
		second := make(chan *mutex.Lock)
		go func() { second <- campaign(t, c, leader.Options{Address: "second"}) }()
		s.AwaitWaiters("scheduler", 1)
		proctest.Must(t, errors.Join(first.Alive(t.Context(), "which is no news"), first.Unlock()))
		want("second")
		proctest.Must(t, (<-second).Unlock())
		want("nobody")
		stop()
	})
}

// How the watch outlives that a real etcd is away is tested in internal/lockstore.
func TestObserverReportsThatTheLeaderIsUnknown(t *testing.T) {
	inMemory(t, func(t *testing.T, s *locktest.Server) {
		s.Hold("scheduler")
		seen := make(chan error, 100)
		stop := observe(t, s, func(r *metadata.Record, err error) {
			if (r == nil) == (err == nil) {
				t.Errorf("%+v, %v", r, err)
			}
			seen <- err
		})
		proctest.Must(t, <-seen)
		s.Disconnect()
		if err := <-seen; err == nil {
			t.Error("the same leader came again")
		}
		s.Reconnect()
		for <-seen != nil { // until the leader is known again
		}
		stop()
	})
}

func TestDeposedLeaderCampaignsAgain(t *testing.T) {
	inMemory(t, func(t *testing.T, s *locktest.Server) {
		terms := 0
		c := s.Client(mutex.Options{})
		err := leader.Lead(t.Context(), c, "scheduler", leader.Options{}, func(ctx context.Context) error {
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
		})
		if err == nil || err.Error() != "enough" || terms != 2 {
			t.Errorf("%d terms, %v", terms, err)
		}
		s.AssertNothingLeft()
	})
}

func TestLeadEndsWithItsContext(t *testing.T) {
	inMemory(t, func(t *testing.T, s *locktest.Server) {
		c := s.Client(mutex.Options{})
		ctx, cancel := context.WithCancel(t.Context())
		err := leader.Lead(ctx, c, "scheduler", leader.Options{}, func(ctx context.Context) error {
			cancel()
			<-ctx.Done()
			return context.Cause(ctx)
		})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("the leader's error is %v", err)
		}
		s.AssertNothingLeft()

		s.Hold("scheduler")
		ctx, cancel = context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err = leader.Lead(ctx, c, "scheduler", leader.Options{}, func(context.Context) error {
			t.Error("there are two leaders")
			return nil
		})
		if held, isHeld := errors.AsType[*mutex.HeldError](err); !isHeld || held.Holder.Owner != "stranger" {
			t.Errorf("the candidate's error is %v", err)
		}
	})
}

func TestLeaderLeadsWhileHealthy(t *testing.T) {
	inMemory(t, func(t *testing.T, s *locktest.Server) {
		var log bytes.Buffer
		var sick atomic.Bool
		c := s.Client(mutex.Options{Owner: "scheduler", Logger: slog.New(slog.NewTextHandler(&log, nil))})
		l := campaign(t, c, leader.Options{TTL: time.Hour, Check: func(context.Context) error {
			if sick.Load() {
				return errors.New("the disk is full")
			}
			return nil
		}, LockOptions: []mutex.Option{mutex.AutoUnlockAfter(time.Minute), mutex.AlertAfter(time.Minute)}})
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		if l.Context().Err() != nil {
			t.Fatalf("a healthy leader was lost: %v", context.Cause(l.Context()))
		}
		r := current(t, inspector(t, s.Etcd()))
		if left := time.Until(r.AutoUnlockAt); left < 40*time.Second || left > time.Minute ||
			r.AlertAt.Before(r.AutoUnlockAt) {
			t.Errorf("its record has %v left, the alert comes in %v", left, time.Until(r.AlertAt))
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
		var terms atomic.Int32
		hangs := func(ctx context.Context) error {
			if terms.Load() == 1 {
				<-ctx.Done()
				time.Sleep(time.Hour) // it does not heed its context
			}
			return nil
		}
		began := time.Now()
		o := leader.Options{TTL: time.Minute, Check: hangs}
		err := leader.Lead(t.Context(), s.Client(mutex.Options{}), "scheduler", o, func(ctx context.Context) error {
			if terms.Add(1) == 1 {
				<-ctx.Done()
			}
			return nil
		})
		if took := time.Since(began); err != nil || terms.Load() != 2 || took > time.Minute {
			t.Errorf("%d terms in %v, %v", terms.Load(), took, err)
		}
		time.Sleep(2 * time.Hour) // until the check is over
	})
}

func TestLeadershipSurvivesAnOutageShorterThanItsLife(t *testing.T) {
	inMemory(t, func(t *testing.T, s *locktest.Server) {
		l := campaign(t, s.Client(mutex.Options{}), leader.Options{})
		defer l.Unlock()
		for range 5 {
			s.Disconnect()
			time.Sleep(leader.DefaultTTL / 2)
			s.Reconnect()
			time.Sleep(leader.DefaultTTL / 2)
		}
		if l.Context().Err() != nil {
			t.Errorf("it was lost: %v", context.Cause(l.Context()))
		}
		s.Disconnect()
		<-l.Lost()
		s.Reconnect()
	})
}

func TestCampaignRefusesBadOptions(t *testing.T) {
	inMemory(t, func(t *testing.T, s *locktest.Server) {
		for want, o := range map[string]leader.Options{
			"Options.TTL is -1ns: it must be at least 100ms":   {TTL: -1},
			"address has 1025 bytes, at most 1024 are allowed": {Address: strings.Repeat("x", metadata.MaxTextBytes+1)},
			"a leader holds a plain lock, or there are two":    {LockOptions: []mutex.Option{mutex.Semaphore(2)}},
		} {
			_, err := leader.Campaign(t.Context(), s.Client(mutex.Options{}), "scheduler", o)
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want %s", err, want)
			}
		}
		s.AssertFree("scheduler")
	})
}
