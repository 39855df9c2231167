package dashboard_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/dashboard"
	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// ends has the dashboard see a hold end that took so long. A nil change leaves it released.
func (s *scene) ends(d *dashboard.Dashboard, lock string, took time.Duration, change func(*metadata.Record) string) {
	s.tick(took)
	s.revision++
	r := &metadata.Record{Name: lock, UUID: uuid(fmt.Sprint(lock, s.revision)), Token: s.revision,
		Identity: metadata.Identity{Owner: "drm"}, LockedAt: s.now.Add(-took)}
	var ending *metadata.Ending
	if change != nil {
		if how := change(r); how != "" {
			ending = new(lockrecord.NewEnding(r, how, "bob", "it hung", s.now))
		}
	}
	d.Ended(r, ending)
}

func TestUsualHoldNeedsThreeReleases(t *testing.T) {
	const lock = "drm/rotate-keys"
	s := busy()
	d := s.dashboard(t)
	ok(t, d, "/history") // it watches from here on
	usual := func(page, json string) {
		t.Helper()
		shown := words(ok(t, d, "/lock?name="+lock))
		if page == "" && strings.Contains(shown, "Usually") || !strings.Contains(shown, page) {
			t.Errorf("the page does not say %q: %.600s", page, shown)
		}
		answer := ok(t, d, "/api/v1/lock?name="+lock)
		if json == "" && strings.Contains(answer, "usual_hold") || !strings.Contains(answer, json) {
			t.Errorf("the API does not say %q: %s", json, answer)
		}
	}
	usual("", "")
	s.ends(d, lock, 3*time.Minute, nil)
	s.ends(d, lock, 9*time.Minute, nil)
	s.ends(d, lock, time.Hour, func(*metadata.Record) string { return metadata.EndingForced })
	s.ends(d, lock, time.Hour, func(*metadata.Record) string { return metadata.EndingAutoUnlocked })
	s.ends(d, lock, time.Hour, func(*metadata.Record) string { return metadata.EndingAbandoned })
	s.ends(d, lock, time.Second, func(r *metadata.Record) string {
		r.FinishRequest = &metadata.FinishRequest{By: "ann", Source: "cli", Reason: "the deploy waits"}
		return ""
	})
	s.ends(d, lock, time.Hour, func(r *metadata.Record) string {
		r.LockedAt = time.Time{}
		return ""
	})
	s.ends(d, "drm/rotate-keys-2", time.Hour, nil)
	usual("", "")

	s.tick(time.Hour)
	s.relists++ // the next hold was gone when etcd was heard again
	s.ends(d, lock, 0, func(r *metadata.Record) string {
		r.LockedAt = s.now.Add(-time.Hour)
		return ""
	})
	usual("", "")
	s.tick(time.Minute)
	s.ends(d, lock, 4*time.Minute, nil)
	usual("Usually takes 4m (3 holds seen)", `"usual_hold":{"seconds":240,"holds":3}`)
}

func TestUsualHoldIsSaidOfFreeAndSharedLocks(t *testing.T) {
	s := pool()
	d := s.dashboard(t)
	for n := range 4 {
		s.ends(d, "nobody", 400*time.Millisecond, nil)
		s.ends(d, fmt.Sprint("pool#", n+1), time.Duration(n+1)*time.Minute, func(r *metadata.Record) string {
			r.Attributes = map[string]any{metadata.AttributeKind: metadata.KindSemaphore}
			return ""
		})
	}
	wantWords(t, ok(t, d, "/lock?name=nobody"), "Usually takes less than a second (4 holds seen).")
	wantWords(t, ok(t, d, "/lock?name=pool"), "Usually takes 2m (4 holds seen)")
	if answer := ok(t, d, "/api/v1/lock?name=pool"); !strings.Contains(answer,
		`"usual_hold":{"seconds":150,"holds":4}`) {
		t.Errorf("the API says %s", answer)
	}
}
