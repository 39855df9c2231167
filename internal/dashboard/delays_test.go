package dashboard_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/dashboard/setup"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// delayed gives the dashboard one lock delay: of the lock of this name.
func delayed(s *scene, name string) func(*setup.Config) {
	return func(c *setup.Config) {
		c.Delays = func(lock string) []metadata.Delay {
			if lock != name {
				return nil
			}
			return []metadata.Delay{{Lock: name, UUID: "6f1f6f5e-5d1c-4e52-9d2e-0a9a3f1c7b11", Token: 7,
				Owner: "billing", Hostname: "<b>host-3", Ended: metadata.EndedForced, By: "ann",
				At: metadata.Time{Time: s.now.Add(-4 * time.Second)}, Seconds: 30, Leased: true, Revision: 99}}
		}
	}
}

func TestALockInItsDelaySaysWhoWasBeforeAndUntilWhen(t *testing.T) {
	s := busy()
	want := "There is a lock delay of 30s after the hold of billing on <b>host-3, force-unlocked by ann 4s ago, " +
		"lasts 26s more (mutexctl end-delay "
	page := get(s.dashboard(t, delayed(s, "billing/free")), "/lock?name=billing/free")
	if page.Code != 200 || strings.Contains(page.Body.String(), "<b>host-3") {
		t.Errorf("status %d: %s", page.Code, page.Body)
	}
	wantWords(t, page.Body.String(), "Nobody holds this lock, and nobody waits for it. "+want+"billing/free ends it).")
	held := ok(t, s.dashboard(t, delayed(s, stuck)), "/lock?name="+stuck) // a share of it, or a client that ignored it
	wantWords(t, held, want+stuck+" ends it).")
	api := ok(t, s.dashboard(t, delayed(s, stuck)), "/api/v1/lock?name="+stuck)
	for _, member := range []string{`"delays":[{"name":"` + stuck + `"`, `"how":"forced"`, `"revision":"99"`,
		`"until_in_seconds":26`} {
		if !strings.Contains(api, member) {
			t.Errorf("the API does not say %s: %s", member, api)
		}
	}
	if other := ok(t, s.dashboard(t), "/api/v1/lock?name="+stuck); strings.Contains(other, "delays") {
		t.Errorf("a lock without a delay: %s", other)
	}
}

func TestAForceUnlockHasTheLockDelayOfTheRecordOrTheDefault(t *testing.T) {
	for name, c := range map[string]struct {
		record, standard, want time.Duration
	}{
		"of the record":             {30 * time.Second, 10 * time.Second, 30 * time.Second},
		"the default":               {0, 10 * time.Second, 10 * time.Second},
		"none is wanted":            {metadata.NoLockDelay, 10 * time.Second, 0},
		"none, as by default it is": {0, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := busy()
			document := s.documents[stuck]
			document.LockDelay = c.record
			s.documents[stuck] = document
			var got time.Duration
			d, _ := operated(t, s, func(config *setup.Config) {
				config.Policy.LockDelay = c.standard
				config.ForceUnlock = func(_ context.Context, r metadata.Removal, _ protocol.Action) error {
					got = r.Delay
					return nil
				}
			})
			form := get(d, unlockLink(s, stuck), "X-Forwarded-User", "chief").Body.String()
			if told := strings.Contains(form, "A lock delay of "); told != (c.want > 0) {
				t.Errorf("the form tells of a delay: %v", told)
			}
			post(d, "chief", unlockLink(s, stuck), s.wanted(stuck))
			if got != c.want {
				t.Errorf("the removal has a delay of %v, want %v", got, c.want)
			}
		})
	}
}
