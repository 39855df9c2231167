package dashboard_test

import (
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/dashboard"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

func TestManyViewersSeeWholePicturesWhileLocksChange(t *testing.T) {
	s := crowd(500)
	var locks atomic.Pointer[[]*metadata.Record]
	locks.Store(&s.locks)
	d := s.dashboard(t, func(c *dashboard.Config) {
		c.Locks = func() []*metadata.Record { return *locks.Load() }
		c.Now = func() time.Time { return time.Now() }
		c.Fresh = func() dashboard.Freshness { return dashboard.Freshness{Synced: true, Heard: time.Now(), Revision: 1} }
		c.Clock = func() time.Duration { return time.Hour }
	})
	stop := make(chan struct{})
	var done sync.WaitGroup
	done.Go(func() { // all locks change at once, from one revision to the next
		for revision := int64(1000); ; revision++ {
			select {
			case <-stop:
				return
			default:
			}
			next := slices.Clone(*locks.Load())
			for i, r := range next {
				changed := *r
				changed.Revision, changed.Owner = revision, fmt.Sprint("owner-", revision)
				next[i] = &changed
			}
			locks.Store(&next)
		}
	})
	var viewers sync.WaitGroup
	for viewer := range 6 {
		viewers.Go(func() {
			for i := range 20 {
				data, _ := fetch[[]lock](t, d, fmt.Sprintf("/api/v1/locks?limit=1000&fields=owner&sort=%s", []string{"urgency", "owner", "-held"}[(viewer+i)%3]))
				owners := map[any]bool{}
				for _, l := range data {
					owners[l["owner"]] = true
				}
				if len(data) != 500 || len(owners) != 1 && !owners["service-00"] {
					t.Errorf("a viewer sees %d locks of %d revisions", len(data), len(owners))
				}
				if w := get(d, "/?q=tenant"); w.Code != http.StatusOK {
					t.Errorf("the list answers %d", w.Code)
				}
			}
		})
	}
	viewers.Wait()
	close(stop)
	done.Wait()
}
