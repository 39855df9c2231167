package lockview_test

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/lockview"
)

// Each revision changes two locks, each with keys that belong together. Polling readers must never see half of one.
func TestReadersSeeWholeRevisions(t *testing.T) {
	t.Parallel()
	w := newWorld()
	v := run(t, w.source(), lockview.Options{RelistEvery: 5 * time.Millisecond})
	ctx, stop := context.WithCancel(t.Context())
	var readers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			for ctx.Err() == nil {
				locks := v.Locks()
				if len(locks) != 0 && len(locks) != 2 {
					t.Errorf("%d locks, want both or none", len(locks))
					return
				}
				for _, r := range locks {
					whole := r.Owner == r.UUID && r.Problems == nil && (r.Alive == nil || r.Alive.At.Equal(r.AlertAt))
					if !whole || r.UUID != locks[0].UUID || r.Revision != locks[0].Revision {
						t.Errorf("half of a revision: %+v beside %+v", r, locks[0])
						return
					}
				}
				runtime.Gosched()
			}
		})
	}
	for i := range 300 {
		ours := func(d *lockrecord.Draft) { d.Owner = d.UUID }
		w.do(slices.Concat(lock(t, "left", uuid(i), ours), lock(t, "right", uuid(i), ours))...)
		settle(t, v, w)
		w.do(slices.Concat(alive("left", i), alive("right", i))...)
		settle(t, v, w)
		w.do(removeAll(layout.Record("left")), removeAll(layout.Record("right")))
	}
	stop()
	readers.Wait()
}
