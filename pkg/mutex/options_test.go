package mutex_test

import (
	"strings"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/pkg/mutex"
)

func TestDurationsFollowFromEachOther(t *testing.T) {
	type durations struct {
		defaults, call    []mutex.Option
		alert, autoUnlock time.Duration
	}
	minute := opts(mutex.AlertAfter(time.Minute), mutex.AutoUnlockAfter(time.Hour))
	queues(t, map[string]durations{
		"nothing said":           {nil, nil, 5 * time.Minute, 15 * time.Minute},
		"the run time said":      {nil, opts(mutex.AlertAfter(time.Hour)), time.Hour, 3 * time.Hour},
		"the life said":          {nil, opts(mutex.AutoUnlockAfter(time.Hour)), 20 * time.Minute, time.Hour},
		"the client's default":   {minute, nil, time.Minute, time.Hour},
		"the call wins":          {minute, opts(mutex.AlertAfter(2 * time.Minute)), 2 * time.Minute, time.Hour},
		"a heartbeat":            {nil, opts(mutex.Heartbeat(time.Hour)), time.Minute, time.Minute},
		"a heartbeat of seconds": {nil, opts(mutex.Heartbeat(10 * time.Second)), 10 * time.Second, 10 * time.Second},
	}, func(t *testing.T, q *fake, c durations) {
		take(t, newClient(t, q.client(), mutex.Options{Defaults: c.defaults}), "a", c.call...)
		doc := read(t, q.etcd, "a")
		if alert, autoUnlock := time.Until(doc.AlertAt), time.Until(doc.AutoUnlockAt); alert != c.alert ||
			autoUnlock != c.autoUnlock {
			t.Errorf("alert after %v, want %v; auto-unlock after %v, want %v", alert, c.alert, autoUnlock, c.autoUnlock)
		}
	})
}

func TestDeepBacktraceIsCutAndNeverAnError(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake, locks *mutex.Client) {
		var dive func(depth int)
		dive = func(depth int) {
			if depth > 0 {
				dive(depth - 1)
				return
			}
			take(t, locks, "a", mutex.BacktraceDepth(1000))
		}
		dive(500)
		doc := read(t, f.etcd, "a")
		if n := len(doc.Backtrace); n > 16<<10 || n < 8<<10 || !strings.HasSuffix(doc.Backtrace, "\n... cut\n") {
			t.Errorf("%d bytes, ends with %q", n, doc.Backtrace[n-20:])
		}
		if take(t, locks, "b", mutex.BacktraceDepth(0)); read(t, f.etcd, "b").Backtrace != "" {
			t.Error("a backtrace that nobody wanted")
		}
	})
}

func opts(o ...mutex.Option) []mutex.Option { return o }
