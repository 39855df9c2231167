package inspect_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"

	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
	"github.com/clustermutex/unlocker/pkg/inspect"
	"github.com/clustermutex/unlocker/pkg/locktest"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

func TestMain(m *testing.M) { etcdtest.Main(m) }

type test = func(t *testing.T, s *locktest.Server, st *inspect.Inspector)

// onBoth runs a test with a real etcd and with one in memory, and looks for goroutines that are left.
func onBoth(t *testing.T, test test) {
	t.Run("real", func(t *testing.T) {
		before := goleak.IgnoreCurrent()
		t.Run("", func(t *testing.T) { with(t, locktest.New(t), test) })
		goleak.VerifyNone(t, before)
	})
	t.Run("in memory", func(t *testing.T) { inMemory(t, test) })
}

// inMemory runs a test in which time passes at once.
func inMemory(t *testing.T, test test) {
	synctest.Test(t, func(t *testing.T) { with(t, locktest.NewInMemory(t), test) })
}

func with(t *testing.T, s *locktest.Server, test test) {
	st, err := inspect.New(s.Etcd(), inspect.Options{})
	proctest.Must(t, err)
	test(t, s, st)
}

func get(t testing.TB, s *inspect.Inspector, name string) *inspect.LockInfo {
	t.Helper()
	info, err := s.Get(t.Context(), name)
	proctest.Must(t, err)
	return info
}

func TestNewRefusesBadOptions(t *testing.T) {
	if _, err := inspect.New(nil, inspect.Options{}); err == nil {
		t.Error("an inspector without etcd")
	}
	if _, err := inspect.New(clientv3.NewCtxClient(t.Context()), inspect.Options{Prefix: "\n"}); err == nil {
		t.Error("an inspector of a bad prefix")
	}
}

// What it lists is tested in internal/lockstore.
func TestListEndsWithItsLoopOrError(t *testing.T) {
	onBoth(t, func(t *testing.T, s *locktest.Server, st *inspect.Inspector) {
		for _, name := range []string{"a", "b", "c"} {
			s.Hold(name)
		}
		n := 0
		for r, err := range st.List(t.Context(), "") {
			if n++; r == nil || err != nil || n == 2 {
				break
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		var failed []error
		for r, err := range st.List(ctx, "") {
			if r != nil {
				t.Errorf("a record after ctx had ended: %+v", r)
			}
			failed = append(failed, err)
		}
		if n != 2 || len(failed) != 1 || !errors.Is(failed[0], context.Canceled) {
			t.Errorf("%d records were yielded before the loop broke; the errors are %v", n, failed)
		}
	})
}

func TestGetReturnsEverythingAboutALock(t *testing.T) {
	onBoth(t, func(t *testing.T, s *locktest.Server, st *inspect.Inspector) {
		if free := get(t, st, "a"); free.Holder() != nil || free.Holders != nil || free.Waiters != nil ||
			free.Delays != nil || free.Revision == 0 || free.Name != "a" {
			t.Errorf("a free lock: %+v", free)
		}
		theirs := s.Hold("a", mutex.Purpose("dinner"))
		waiting := s.Client(mutex.Options{Owner: "billing"})
		ctx, giveUp := context.WithCancel(t.Context())
		gone := make(chan error)
		go func() {
			_, err := waiting.Lock(ctx, "a")
			gone <- err
		}()
		s.AwaitWaiters("a", 1)
		info := get(t, st, "a")
		if h := info.Holder(); h == nil || h.Purpose != "dinner" || h.Token != theirs.Token() || h.Backtrace == "" ||
			len(info.Holders) != 1 || len(info.Waiters) != 1 || info.Waiters[0].Owner != "billing" {
			t.Errorf("%+v", info)
		}
		giveUp()
		if err := <-gone; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		first := s.Hold("pool", mutex.Semaphore(3))
		second := s.Hold("pool", mutex.Semaphore(3))
		info = get(t, st, "pool")
		if len(info.Holders) != 2 || info.Holders[0].UUID != first.UUID() || info.Holders[1].UUID != second.UUID() {
			t.Errorf("%+v", info.Holders)
		}
		if _, err := st.Get(t.Context(), ""); err == nil {
			t.Error("a lock without a name")
		}
	})
}

func TestWatchYieldsWhatChanges(t *testing.T) {
	onBoth(t, func(t *testing.T, s *locktest.Server, st *inspect.Inspector) {
		changes := make(chan string)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			for info, err := range st.Watch(ctx, "a") {
				switch {
				case err != nil:
					changes <- err.Error()
				case info.Holder() == nil:
					changes <- fmt.Sprintf("free, %d delays", len(info.Delays))
				default:
					changes <- fmt.Sprintf("%s: %s", info.Holder().Owner, progress(info.Holder()))
				}
			}
		}()
		want := func(text string) {
			t.Helper()
			for { // states in between may be seen or not
				if got := <-changes; got == text {
					return
				}
			}
		}
		want("free, 0 delays")
		s.Hold("another")
		l := s.Hold("a", mutex.LockDelay(time.Minute))
		want("stranger: ")
		proctest.Must(t, l.Alive(t.Context(), "half"))
		want("stranger: half")
		s.ForceUnlock("a", "the test wants it")
		want("free, 1 delays")
		stop()
		select {
		case got := <-changes:
			t.Errorf("after the end: %s", got)
		case <-done:
		}
	})
}

func progress(d *metadata.FullRecord) string {
	if d.Alive == nil {
		return ""
	}
	return d.Alive.Progress
}

// How the watch outlives an outage and a compaction of a real etcd is tested in internal/lockstore.
func TestWatchReportsReadErrorsAndContinues(t *testing.T) {
	inMemory(t, func(t *testing.T, s *locktest.Server, st *inspect.Inspector) {
		s.Hold("a")
		seen := make(chan error)
		done := make(chan struct{})
		go func() {
			defer close(done)
			states := 0
			for info, err := range st.Watch(t.Context(), "a") {
				if (info == nil) == (err == nil) {
					t.Errorf("%v, %v", info, err)
				}
				seen <- err
				if err == nil {
					states++
				}
				if states == 2 {
					break
				}
			}
		}()
		proctest.Must(t, <-seen)
		s.Disconnect()
		if err := <-seen; err == nil {
			t.Error("a state that has not changed came again")
		}
		s.Reconnect()
		for <-seen != nil { // until it can read again
		}
		<-done
	})
}

func TestWatchOfABadNameEndsAtOnce(t *testing.T) {
	inMemory(t, func(t *testing.T, _ *locktest.Server, st *inspect.Inspector) {
		n := 0
		for info, err := range st.Watch(t.Context(), "") {
			if n++; info != nil || err == nil {
				t.Errorf("%v, %v", info, err)
			}
		}
		if n != 1 {
			t.Errorf("%d values", n)
		}
	})
}
