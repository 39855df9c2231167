package mutex_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/connectivity"

	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

// diary records the calls of hooks, one line each.
type diary struct {
	mu    sync.Mutex
	lines []string
}

func (d *diary) write(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, fmt.Sprintf(format, args...))
}

func (d *diary) want(t *testing.T, lines ...string) {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	if !slices.Equal(d.lines, lines) {
		t.Errorf("the hooks were told\n  %s\nwant\n  %s", strings.Join(d.lines, "\n  "), strings.Join(lines, "\n  "))
	}
	d.lines = nil
}

func (d *diary) hooks() mutex.Hooks {
	return mutex.Hooks{
		AcquireEnded: func(e mutex.AcquireEnded) {
			d.write("%s %s after %v, hold %v, error %v", e.Name, e.Result, e.WaitTime, e.Lock != nil, e.Err != nil)
		},
		ExtendEnded: func(e mutex.ExtendEnded) {
			d.write("%s %s, heartbeat %v, after %v, error %v", e.Lock.Name(), e.Result, e.Heartbeat, e.Duration,
				e.Err != nil)
		},
		Lost: func(e mutex.Lost) {
			d.write("%s lost after %v: %s, certain %v", e.Lock.Name(), e.HoldTime.Round(time.Second), e.Reason,
				e.Err.Certain)
		},
		ReleaseEnded: func(e mutex.ReleaseEnded) {
			d.write("%s %s after %v, error %v", e.Lock.Name(), e.Result, e.HoldTime.Round(time.Second), e.Err != nil)
		},
	}
}

func TestHooksReportTheLifeOfALock(t *testing.T) {
	var d diary
	bubbleWith(t, mutex.Options{Hooks: d.hooks()}, func(t *testing.T, f *fake, locks *mutex.Client) {
		l := take(t, locks, "a", mutex.AutoUnlockAfter(time.Minute))
		locks.TryLock(context.Background(), "a")
		locks.Lock(within(t, 3*time.Second), "a")
		l.Alive(context.Background())
		l.Unlock()
		d.want(t, "a acquired after 0s, hold true, error false", "a held after 0s, hold false, error true",
			"a gave_up after 3s, hold false, error true", "a extended, heartbeat false, after 0s, error false",
			"a released after 3s, error false")

		l = take(t, locks, "a", mutex.Heartbeat(time.Hour), mutex.AutoUnlockAfter(10*time.Second),
			mutex.SafetyMargin(time.Second))
		time.Sleep(4 * time.Second)
		f.put("/mutexes/a/uuid", "another")
		<-l.Lost()
		synctest.Wait() // the hook is told after that
		l.Unlock()
		d.want(t, "a acquired after 0s, hold true, error false", "a extended, heartbeat true, after 0s, error false",
			"a lost after 4s: removed, certain true")
		f.delete(mutex.DefaultPrefix)

		l = take(t, locks, "b", mutex.AutoUnlockAfter(time.Minute), mutex.SafetyMargin(time.Second))
		f.away.Store(true)
		<-l.Lost()
		time.Sleep(time.Second)
		f.away.Store(false)
		l.Unlock()
		d.want(t, "b acquired after 0s, hold true, error false", "b lost after 59s: time, certain false")

		f.away.Store(true)
		locks.TryLock(context.Background(), "c")
		d.want(t, "c error after 15s, hold false, error true")
		f.away.Store(false)
		locks.TryLock(context.Background(), "")
		d.want(t)
	})
}

func TestHookReportsARequestToFinish(t *testing.T) {
	var asked []mutex.Acquiring
	o := mutex.Options{Hooks: mutex.Hooks{Acquiring: func(e mutex.Acquiring) { asked = append(asked, e) }}}
	bubbleWith(t, o, func(t *testing.T, f *fake, locks *mutex.Client) {
		f.away.Store(true)
		got := waits(t, locks)
		synctest.Wait()
		if len(asked) != 1 || asked[0].Name != "a" || asked[0].Context.Err() != nil {
			t.Fatalf("the hook got %v", asked)
		}
		f.away.Store(false)
		<-asked[0].Context.Done() // with the call
		if locks.Lock(t.Context(), ""); len(asked) != 1 {
			t.Error("the hook was called for a call with bad arguments")
		}
		<-got
	})
}

func TestHooksMayUseTheClient(t *testing.T) {
	var locks *mutex.Client
	hooks := mutex.Hooks{
		AcquireEnded: func(e mutex.AcquireEnded) {
			if e.Lock != nil {
				e.Lock.Alive(context.Background(), "acquired")
			}
		},
		Lost: func(e mutex.Lost) { e.Lock.Unlock() },
	}
	bubbleWith(t, mutex.Options{Hooks: hooks}, func(t *testing.T, f *fake, c *mutex.Client) {
		locks = c
		l := take(t, locks, "a")
		if p := read(t, f.etcd, "a").Alive.Progress; p != "acquired" {
			t.Errorf("progress is %q", p)
		}
		time.Sleep(time.Second)
		f.put("/mutexes/a/uuid", "another")
		<-l.Lost()
	})
}

func TestHooksAreCalledInSequence(t *testing.T) {
	var first, second diary
	bubbleWith(t, mutex.Options{Hooks: first.hooks().And(mutex.Hooks{}).And(second.hooks())},
		func(t *testing.T, _ *fake, locks *mutex.Client) {
			take(t, locks, "a").Unlock()
			want := []string{"a acquired after 0s, hold true, error false", "a released after 0s, error false"}
			first.want(t, want...)
			second.want(t, want...)
		})
}

func TestLossIsLogged(t *testing.T) {
	var log lines
	bubbleWith(t, log.options(), func(t *testing.T, f *fake, locks *mutex.Client) {
		l := take(t, locks, "a", mutex.Heartbeat(time.Minute), mutex.AutoUnlockAfter(30*time.Second))
		f.away.Store(true)
		<-l.Lost()
		synctest.Wait() // for those who log
		for _, want := range []string{`level=WARN msg="lock lost" lock=a uuid=` + l.UUID() + ` token=` +
			fmt.Sprint(l.Token()) + ` error="lock \"a\" may be lost`, `msg="heartbeat failed"`} {
			if told := log.with(want); len(told) == 0 {
				t.Errorf("the log has no %s in %q", want, log.text)
			}
		}
	})
}

func TestOptionsComeFromTheContextOfTheCall(t *testing.T) {
	type key struct{}
	var saw []any
	bubbleWith(t, mutex.Options{
		Defaults: []mutex.Option{mutex.Attribute("from", "defaults"), mutex.Purpose("nightly")},
		ContextOptions: func(ctx context.Context) []mutex.Option {
			value, ok := ctx.Value(key{}).(string)
			if !ok {
				return nil
			}
			return []mutex.Option{mutex.Attribute("from", value), mutex.Attribute("trace", value)}
		},
		Hooks: mutex.Hooks{AcquireEnded: func(e mutex.AcquireEnded) { saw = append(saw, e.Context.Value(key{})) }},
	}, func(t *testing.T, f *fake, locks *mutex.Client) {
		ctx := context.WithValue(t.Context(), key{}, "context")
		locks.Lock(ctx, "a", mutex.Attribute("trace", "call"))
		locks.TryLockAll(ctx, []string{"b", "c"})
		locks.TryLock(t.Context(), "d")
		for name, want := range map[string][2]any{"a": {"context", "call"}, "b": {"context", "context"},
			"c": {"context", "context"}, "d": {"defaults", nil}} {
			r := read(t, f.etcd, name)
			if got := [2]any{r.Attributes["from"], r.Attributes["trace"]}; got != want || r.Purpose != "nightly" {
				t.Errorf("the record of %s is from %v, for %q; want %v", name, got, r.Purpose, want)
			}
		}
		if want := []any{"context", "context", "context", nil}; !slices.Equal(saw, want) {
			t.Errorf("the hook saw %v, want %v", saw, want)
		}
	})
}

// lines collects a client's log lines.
type lines struct {
	mu   sync.Mutex
	text []string
}

// options returns options for a client that logs to l.
func (l *lines) options() mutex.Options {
	return mutex.Options{Logger: slog.New(slog.NewTextHandler(l, nil))}
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = append(l.text, string(p))
	return len(p), nil
}

// with returns the lines that contain a text.
func (l *lines) with(what string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(l.text), func(line string) bool { return !strings.Contains(line, what) })
}

func TestSilentEtcdIsReportedOnce(t *testing.T) {
	var log lines
	bubbleWith(t, log.options(), func(t *testing.T, f *fake, locks *mutex.Client) {
		for round := range 2 {
			f.away.Store(true)
			got := waits(t, locks)
			for _, later := range []time.Duration{8 * time.Second, 5 * time.Minute} {
				time.Sleep(later)
				if told := log.with("etcd does not answer"); len(told) != round+1 {
					t.Errorf("after %v the log says: %q", later, told)
				}
			}
			f.away.Store(false)
			unlock(t, <-got)
			if told := log.with("etcd answers again"); len(told) != round+1 {
				t.Errorf("the log says: %q", told)
			}
		}
	})
}

func TestSilentConnectionIsReportedWithItsRemedy(t *testing.T) {
	etcd := etcdtest.Shared(t).Client(t)
	etcdtest.Put(t, etcd, "a", "it is connected")
	queue(t, func(t *testing.T, q *fake) {
		silent := q.client()
		etcd.KV = silent.KV
		etcd.Watcher = silent.Watcher
		etcd.Lease = silent.Lease
		var log lines
		l := take(t, newClient(t, etcd, log.options()), "a")
		q.away.Store(true)
		go l.Alive(t.Context())
		time.Sleep(6 * time.Second)
		told := log.with("on a connection that is open; without DialKeepAliveTime")
		if len(told) != 1 || !strings.Contains(told[0], "endpoints=") {
			t.Errorf("the log says %q", told)
		}
		q.away.Store(false)
		unlock(t, l)
	})
	etcd.Watcher = nil // they ended with the bubble
	etcd.Lease = nil
}

// After a long outage, gRPC waits for minutes before it reconnects, but unlockers wait only half a minute for holders.
func TestHolderRecoversImmediatelyAfterALongOutage(t *testing.T) {
	proxy := etcdtest.NewProxy(t, etcdtest.Shared(t).Endpoint())
	patient := grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: time.Hour, Multiplier: 1, MaxDelay: time.Hour},
		MinConnectTimeout: time.Second}
	etcd, err := clientv3.New(clientv3.Config{
		Endpoints: []string{proxy.Endpoint()}, MaxUnaryRetries: 1, Logger: zap.NewNop(),
		DialOptions: []grpc.DialOption{grpc.WithConnectParams(patient)},
	})
	proctest.Must(t, err)
	t.Cleanup(func() { etcd.Close() })
	locks := newClient(t, etcd, mutex.Options{AttemptTimeout: 300 * time.Millisecond})
	l := take(t, locks, "a")
	proxy.Cut()
	etcdtest.Eventually(t, "an attempt to connect that fails", func() bool {
		etcd.ActiveConnection().Connect()
		return etcd.ActiveConnection().GetState() == connectivity.TransientFailure
	})
	proxy.Heal()
	proctest.Must(t, l.Alive(within(t, 20*time.Second)))
}
