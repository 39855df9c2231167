package dashboard_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/dashboard"
	"github.com/clustermutex/unlocker/internal/dashboard/etcdread"
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
	wantWords(t, ok(t, d, "/lock?name="+lock), "usually takes 4m 3 holds seen")
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

func TestUsualHoldIsTheMedianOfThoseReleased(t *testing.T) {
	begin := time.Date(2026, 11, 21, 3, 0, 0, 0, time.UTC)
	ended := func(cause string, minutes ...float64) (past []metadata.Ending) {
		for _, m := range minutes {
			past = append(past, metadata.Ending{Cause: cause, LockedAt: metadata.Time{Time: begin},
				EndedAt: metadata.Time{Time: begin.Add(time.Duration(m * float64(time.Minute)))}})
		}
		return past
	}
	unknown := ended(metadata.EndingReleased, 5)
	unknown[0].LockedAt = metadata.Time{}
	three := ended(metadata.EndingReleased, 9, 3, 4)
	for name, test := range map[string]struct {
		past   []metadata.Ending
		median time.Duration
		holds  int
	}{
		"none":           {nil, 0, 0},
		"two":            {three[:2], 0, 0},
		"three":          {three, 4 * time.Minute, 3},
		"an even number": {ended(metadata.EndingReleased, 9, 3, 4, 5), 4*time.Minute + 30*time.Second, 4},
		"others were ended early": {slices.Concat(three, ended(metadata.EndingForced, 9),
			ended(metadata.EndingAutoUnlocked, 9), ended(metadata.EndingAbandoned, 9),
			ended(metadata.EndingYielded, 1), ended("stolen", 1)), 4 * time.Minute, 3},
		"two, and others":          {append(ended(metadata.EndingForced, 9), three[:2]...), 0, 0},
		"one has no beginning":     {append(unknown, three...), 4 * time.Minute, 3},
		"a holder's clock is fast": {append(ended(metadata.EndingReleased, -5), three...), 4 * time.Minute, 3},
	} {
		median, holds := etcdread.UsualHold(test.past, nil)
		if median != test.median || holds != test.holds {
			t.Errorf("%s: the median of %d is %v, want %v of %d", name, holds, median, test.median, test.holds)
		}
	}
}
