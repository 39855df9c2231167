package mutex_test

import (
	"strings"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/pkg/mutex"
)

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
				doc := read(t, f.etcd, "a")
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
		doc := read(t, f.etcd, "a")
		if n := len(doc.Backtrace); n > 16<<10 || n < 8<<10 || !strings.HasSuffix(doc.Backtrace, "\n... cut\n") {
			t.Errorf("%d bytes, ends with %q", n, doc.Backtrace[n-20:])
		}
		l.Unlock()
		if l = take(t, locks, "a", mutex.BacktraceDepth(0)); read(t, f.etcd, "a").Backtrace != "" {
			t.Error("a backtrace that nobody wanted")
		}
		l.Unlock()
	})
}

func opts(o ...mutex.Option) []mutex.Option { return o }
