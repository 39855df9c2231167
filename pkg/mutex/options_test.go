package mutex_test

import (
	"context"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

func TestWhatCannotWorkIsRefusedBeforeEtcdIsAsked(t *testing.T) {
	locks := unconnected(t)
	for _, c := range []struct {
		name, lock string
		opts       []mutex.Option
		want       string
	}{
		{"an empty name", "", nil, "the lock name is empty"},
		{"a long name", strings.Repeat("x", 257), nil, "the lock name has 257 bytes, at most 256 are allowed"},
		{"a control character", "a\nb", nil, "the lock name contains a control character"},
		{"a name that is no text", "\xff", nil, "the lock name is not valid UTF-8"},
		{"no run time", "a", opts(mutex.AlertAfter(0)), "the time until alert is 0s, it must be positive"},
		{"a negative run time", "a", opts(mutex.AlertAfter(-time.Second)),
			"the time until alert is -1s, it must be positive"},
		{"an endless run time", "a", opts(mutex.AlertAfter(1 << 62)), "it must be at most 87600h0m0s"},
		{"no life", "a", opts(mutex.AutoUnlockAfter(0)), "the time until auto-unlock is 0s, it must be positive"},
		{"a life too short for a network", "a", opts(mutex.AutoUnlockAfter(time.Millisecond)),
			"the time until auto-unlock is 1ms, it must be at least 100ms"},
		{"an alert after the auto-unlock", "a", opts(mutex.AlertAfter(2*time.Minute),
			mutex.AutoUnlockAfter(time.Minute)),
			"the time until alert of 2m0s is longer than the time until auto-unlock of 1m0s"},
		{"a margin as long as the life", "a", opts(mutex.AutoUnlockAfter(time.Minute), mutex.SafetyMargin(time.Minute)),
			"the safety margin of 1m0s leaves nothing of the time until auto-unlock of 1m0s"},
		{"no margin", "a", opts(mutex.SafetyMargin(0)), "the safety margin is 0s, it must be positive"},
		{"a lock delay into the past", "a", opts(mutex.LockDelay(-1)), "the lock delay is -1ns"},
		{"a lock delay of more than an hour", "a", opts(mutex.LockDelay(time.Hour + 1)), "the lock delay is 1h0m0.000000001s"},
		{"no maximum hold", "a", opts(mutex.Heartbeat(0)),
			"the maximum hold of the heartbeat is 0s, it must be positive"},
		{"a maximum hold shorter than the life", "a",
			opts(mutex.Heartbeat(time.Minute), mutex.AutoUnlockAfter(time.Hour)),
			"the heartbeat's maximum hold of 1m0s is shorter than the time until auto-unlock of 1h0m0s"},
		{"an alert after the maximum hold", "a", opts(mutex.Heartbeat(time.Hour), mutex.AlertAfter(2*time.Hour)),
			"the time until alert of 2h0m0s is longer than the heartbeat's maximum hold of 1h0m0s"},
		{"a negative depth", "a", opts(mutex.BacktraceDepth(-1)),
			"the backtrace depth is -1, it must be between 0 and 1000"},
		{"an attribute of the protocol's", "a", opts(mutex.Attribute("uuid", "x")),
			`attribute "uuid": the name belongs to the protocol`},
		{"an attribute that is no scalar", "a", opts(mutex.Attribute("list", []int{1})),
			`attribute "list": want text, a number or a boolean, not []int`},
		{"a purpose that is no text", "a", opts(mutex.Purpose("\xff")), "purpose is not valid UTF-8"},
		{"a purpose of 2 KiB", "a", opts(mutex.Purpose(strings.Repeat("x", 2048))),
			"purpose has 2048 bytes, at most 1024 are allowed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := locks.TryLock(context.Background(), c.lock, c.opts...)
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("got  %v\nwant %s", err, c.want)
			}
		})
	}
}

func TestCallsThatCannotWorkAreRefusedBeforeEtcdIsAsked(t *testing.T) {
	locks := unconnected(t)
	ctx := context.Background()
	long := strings.Repeat("x", 257)
	nothing := func(context.Context) error { return nil }
	const uuid = "11111111-2222-4333-8444-555555555555"
	for want, call := range map[string]func() error{
		`lock "a": there is no function to run`: func() error { return locks.Do(ctx, "a", nil) },
		`lock "": the lock name is empty`:       func() error { return locks.Do(ctx, "", nothing) },
		`adopt "": the lock name is empty`: func() error {
			_,
				err := locks.Adopt(ctx, "", uuid)
			return err
		},
		`adopt "a": the uuid of the hold is empty`: func() error {
			_,
				err := locks.Adopt(ctx, "a", "")
			return err
		},
		`adopt "` + long + `": the lock name has 257 bytes`: func() error {
			_,
				err := locks.Adopt(ctx, long, uuid)
			return err
		},
		`adopt "a\nb": the lock name contains a control character`: func() error {
			_,
				err := locks.Adopt(ctx, "a\nb", uuid)
			return err
		},
		`lock "a": If and Then cannot be Reentrant: a hold that is entered again is not taken again`: func() error {
			_, err := locks.TryLock(ctx, "a", mutex.Reentrant(), mutex.Then(clientv3.OpPut("/x", "")))
			return err
		},
	} {
		if err := call(); err == nil || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
}

func TestClientThatCannotWorkIsRefused(t *testing.T) {
	etcd := clientv3.NewCtxClient(context.Background())
	for _, c := range []struct {
		name string
		etcd *clientv3.Client
		opts mutex.Options
		want string
	}{
		{"no etcd", nil, mutex.Options{}, "mutex: no etcd client was given"},
		{"all of etcd as prefix", etcd, mutex.Options{Prefix: "/"}, "mutex: the lock prefix is empty"},
		{"an attempt timeout without reason", etcd, mutex.Options{AttemptTimeout: time.Hour},
			"mutex: the attempt timeout is 1h0m0s, it must be at most 1m0s: a request whose connection died is not " +
				"sent again before"},
		{"a negative timeout", etcd, mutex.Options{RequestTimeout: -1},
			"mutex: the request timeout is -1ns, it must be positive"},
		{"a default that cannot work", etcd, mutex.Options{Defaults: opts(mutex.AutoUnlockAfter(-time.Second))},
			"mutex: options: the time until auto-unlock is -1s, it must be positive"},
		{"a process that is no text", etcd, mutex.Options{Process: &metadata.Process{BootID: "a\xffb"}},
			"mutex: options: boot_id is not valid UTF-8"},
		{"an owner that is no text", etcd, mutex.Options{Owner: "\xff"}, "mutex: options: owner is not valid UTF-8"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := mutex.New(c.etcd, c.opts); err == nil || err.Error() != c.want {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
}

func TestDurationsFollowFromEachOther(t *testing.T) {
	for _, c := range []struct {
		name              string
		defaults, call    []mutex.Option
		alert, autoUnlock time.Duration
	}{
		{"nothing said", nil, nil, 5 * time.Minute, 15 * time.Minute},
		{"the run time said", nil, opts(mutex.AlertAfter(time.Hour)), time.Hour, 3 * time.Hour},
		{"the life said", nil, opts(mutex.AutoUnlockAfter(time.Hour)), 20 * time.Minute, time.Hour},
		{"the client's default", opts(mutex.AlertAfter(time.Minute), mutex.AutoUnlockAfter(time.Hour)), nil,
			time.Minute, time.Hour},
		{"the call wins", opts(mutex.AlertAfter(time.Minute), mutex.AutoUnlockAfter(time.Hour)),
			opts(mutex.AlertAfter(2 * time.Minute)), 2 * time.Minute, time.Hour},
		{"a heartbeat", nil, opts(mutex.Heartbeat(time.Hour)), time.Minute, time.Minute},
		{"a heartbeat of seconds", nil, opts(mutex.Heartbeat(10 * time.Second)), 10 * time.Second, 10 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubbleWith(t, mutex.Options{Defaults: c.defaults}, func(t *testing.T, f *fake, locks *mutex.Client) {
				now := time.Now()
				l := take(t, locks, "a", c.call...)
				doc := read(t, f.operator, "a")
				if d := doc.AlertAt.Sub(now); d != c.alert {
					t.Errorf("people are alerted after %v, want %v", d, c.alert)
				}
				if d := doc.AutoUnlockAt.Sub(now); d != c.autoUnlock {
					t.Errorf("auto-unlocked after %v, want %v", d, c.autoUnlock)
				}
				l.Unlock()
			})
		})
	}
}

func TestDeepBacktraceIsCutAndNeverAnError(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake, locks *mutex.Client) {
		var l *mutex.Lock
		var dive func(depth int)
		dive = func(depth int) {
			if depth > 0 {
				dive(depth - 1)
				return
			}
			l = take(t, locks, "a", mutex.BacktraceDepth(1000))
		}
		dive(500)
		doc := read(t, f.operator, "a")
		if n := len(doc.Backtrace); n > 16<<10 || n < 8<<10 || !strings.HasSuffix(doc.Backtrace, "\n... cut\n") {
			t.Errorf("%d bytes, ends with %q", n, doc.Backtrace[n-20:])
		}
		l.Unlock()
		if l = take(t, locks, "a", mutex.BacktraceDepth(0)); read(t, f.operator, "a").Backtrace != "" {
			t.Error("a backtrace that nobody wanted")
		}
		l.Unlock()
	})
}

func opts(o ...mutex.Option) []mutex.Option { return o }
