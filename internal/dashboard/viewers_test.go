package dashboard_test

import (
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/dashboard/setup"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

func TestManyViewersSeeWholePicturesWhileLocksChange(t *testing.T) {
	const held = 100
	s := crowd(held)
	var current atomic.Pointer[[]*metadata.Record]
	current.Store(&s.locks)
	var revision atomic.Int64
	change := func() { // all locks at once, from one revision to the next
		n := revision.Add(1)
		next := slices.Clone(s.locks)
		for i, r := range next {
			changed := *r
			changed.Revision = n
			changed.Owner = fmt.Sprint("owner-", n)
			next[i] = &changed
		}
		current.Store(&next)
	}
	change()
	d := s.dashboard(t, func(c *setup.Config) {
		of(c).shown = copied(func() []*metadata.Record { return *current.Load() })
		c.Now = time.Now
		of(c).fresh = func() protocol.Freshness {
			return protocol.Freshness{Synced: true, Heard: time.Now(),
				Revision: 1}
		}
	})
	var viewers sync.WaitGroup
	for viewer := range 4 {
		viewers.Go(func() {
			for i := range 6 {
				change()
				data, _ := fetch[[]lock](t, d, fmt.Sprintf("/api/v1/locks?limit=1000&fields=owner&sort=%s",
					[]string{"urgency", "owner", "-held"}[(viewer+i)%3]))
				owners := map[any]bool{}
				for _, l := range data {
					owners[l["owner"]] = true
				}
				if len(data) != held || len(owners) != 1 {
					t.Errorf("a viewer sees %d locks of %d revisions", len(data), len(owners))
				}
				if w := get(d, "/?q=tenant"); w.Code != http.StatusOK {
					t.Errorf("the list answers %d", w.Code)
				}
			}
		})
	}
	viewers.Wait()
}
