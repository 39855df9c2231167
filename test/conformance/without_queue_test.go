//go:build conformance

package conformance

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/pkg/mutex"
)

// withoutQueue makes a Go driver a client of the level basic, which breaks no rule. All other clients queue.
var withoutQueue = &fault{name: "a queue", said: func(m map[string]any) map[string]any {
	if _, isInfo := m["levels"]; isInfo {
		m["levels"], m["kinds"] = []string{"basic"}, nil
	}
	return m
}}

// tryAgain takes a lock as a basic client does: it tries about once a second, until the time to wait is over.
func (d *goDriver) tryAgain(ctx context.Context, name string, opts []mutex.Option) (*mutex.Lock, error) {
	var refused error // by the holder last read
	for {
		l, err := d.client.TryLock(ctx, name, opts...)
		if _, held := errors.AsType[*mutex.HeldError](err); held {
			refused = err
		} else if err == nil || refused == nil || ctx.Err() == nil {
			return l, err
		}
		select {
		case <-ctx.Done():
			if errors.Is(context.Cause(ctx), errCancelled) {
				return nil, errCancelled
			}
			return nil, refused
		case <-time.After(time.Second/2 + rand.N(time.Second)):
		}
	}
}

// TestClientWithoutQueuePasses runs the short set on a basic client, alone and beside one that queues.
func TestClientWithoutQueuePasses(t *testing.T) {
	t.Parallel()
	basic, queues := goClient(withoutQueue.name).name, goClient("").name
	labels := []string{basic, basic + "+" + queues, queues + "+" + basic}
	out, err := runSuite(t, withoutQueue, "", labels, "-test.short", "-test.v")
	if err != nil {
		t.Fatalf("%v:\n%s", err, out)
	}
	for _, label := range labels {
		if passed := "/" + strings.ReplaceAll(label, " ", "_") + " "; !strings.Contains(out, passed) {
			t.Errorf("nothing was checked of %s:\n%s", label, out)
		}
	}
}
