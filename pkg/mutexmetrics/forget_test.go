package mutexmetrics

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/clustermutex/unlocker/pkg/locktest"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

// A program that takes locks for years does not remember those that it took.
func TestEndedHoldsAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.NewInMemory(t)
		traced := prometheus.Labels{"trace_id": "1"}
		m := New(Options{Exemplar: func(context.Context) prometheus.Labels { return traced }})
		locks := server.Client(mutex.Options{Hooks: m.Hooks()})
		take := func(name string) *mutex.Lock {
			l, err := locks.TryLock(context.Background(), name)
			if err != nil {
				t.Fatal(err)
			}
			return l
		}
		kept := func(want int) {
			t.Helper()
			synctest.Wait()
			m.exemplars.mu.Lock()
			defer m.exemplars.mu.Unlock()
			if n := len(m.exemplars.holds); n != want {
				t.Errorf("%d exemplars of holds are kept, want %d", n, want)
			}
		}
		released := take("released")
		take("detached").Detach()
		forced := take("forced")
		take("of a client that is closed")
		kept(3)
		released.Unlock()
		server.ForceUnlock("forced", "wrong month")
		<-forced.Lost()
		kept(1)
		locks.Close()
		kept(0)

		// Its loss was told before the call that took it came to its end.
		m.exemplars.keep(forced, traced)
		kept(0)
	})
}
