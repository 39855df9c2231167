package dashboard_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/dashboard"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// ends has the dashboard see a hold end that took so long and was released. A nil change leaves its record as it is.
func (s *scene) ends(d *dashboard.Dashboard, lock string, took time.Duration, change func(*metadata.Record)) {
	s.tick(took)
	s.revision++
	r := &metadata.Record{Name: lock, UUID: uuid(fmt.Sprint(lock, s.revision)), Token: s.revision,
		Identity: metadata.Identity{Owner: "drm"}, LockedAt: s.now.Add(-took)}
	if change != nil {
		change(r)
	}
	d.Ended(r, nil)
}

// Nobody knows how long before it was reported a hold ended that went in a gap of the watch.
func TestUsualHoldLeavesOutWhatEndedInAGap(t *testing.T) {
	const lock = "drm/rotate-keys"
	s := busy()
	d := s.dashboard(t)
	ok(t, d, "/history") // it watches from here on
	for range 3 {
		s.ends(d, lock, 4*time.Minute, nil)
	}
	s.tick(time.Minute)
	ok(t, d, "/history")
	s.tick(time.Hour)
	s.relists++
	s.ends(d, lock, 0, func(r *metadata.Record) { r.LockedAt = s.now.Add(-time.Hour) })
	wantWords(t, ok(t, d, "/lock?name="+lock), "Usually takes 4m (3 holds seen)")
}

func TestUsualHoldIsSaidOfFreeAndSharedLocks(t *testing.T) {
	s := pool()
	d := s.dashboard(t)
	for n := range 4 {
		s.ends(d, "nobody", 400*time.Millisecond, nil)
		s.ends(d, fmt.Sprint("pool#", n+1), time.Duration(n+1)*time.Minute, func(r *metadata.Record) {
			r.Attributes = map[string]any{metadata.AttributeKind: metadata.KindSemaphore}
		})
	}
	wantWords(t, ok(t, d, "/lock?name=nobody"), "Usually takes less than a second (4 holds seen).")
	wantWords(t, ok(t, d, "/lock?name=pool"), "Usually takes 2m (4 holds seen)")
	if answer := ok(t, d, "/api/v1/lock?name=pool"); !strings.Contains(answer,
		`"usual_hold":{"seconds":150,"holds":4}`) {
		t.Errorf("the API says %s", answer)
	}
}
