package dashboard_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/dashboard/setup"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

// delayed gives the dashboard one lock delay: of the lock of this name.
func delayed(s *scene, name string) func(*setup.Config) {
	return func(c *setup.Config) {
		of(c).delays = func(lock string) []metadata.Delay {
			if lock != name {
				return nil
			}
			return []metadata.Delay{{Lock: name, UUID: delayedHold, Token: 7,
				Owner: "billing", Hostname: "<b>host-3", Ended: metadata.EndedForced, By: "ann",
				At: metadata.Time{Time: s.now.Add(-4 * time.Second)}, Seconds: 30, Leased: true, Revision: 99}}
		}
	}
}

// delayedHold is the hold of which [delayed] tells.
const delayedHold = "6f1f6f5e-5d1c-4e52-9d2e-0a9a3f1c7b11"

func endForm(name string) url.Values {
	return url.Values{"hold": {delayedHold}, "token": {"7"}, "revision": {"99"}, "typed": {name},
		"reason": {"node-3 is  switched off"}, "ticket": {"OPS-12"}}
}

func endLink(name string) string { return "/end-delay?name=" + name + "&hold=" + delayedHold }

func TestOnlyThoseWhoMayAreLedToTheEndOfALockDelay(t *testing.T) {
	s := busy()
	d := operators(t, s, new([]protocol.Action), new(error))
	page := "/lock?name=billing/free"
	for _, who := range []string{"viewer", "catalog-only"} {
		body := get(d, page, "X-Forwarded-User", who).Body.String()
		if strings.Contains(body, "/end-delay?") {
			t.Errorf("%s is led to the form", who)
		}
		wantWords(t, body, "(mutexctl end-delay --uuid "+delayedHold+" --reason '' billing/free ends it).")
	}
	s.fresh.Heard = s.now.Add(-time.Minute)
	if strings.Contains(get(d, page, "X-Forwarded-User", "chief").Body.String(), "/end-delay?") {
		t.Error("a stale page leads to the form")
	}
}

func TestTheDelayOfAShareEndsAtThePageOfTheLock(t *testing.T) {
	s := busy()
	s.wait("pool", "catalog", time.Minute)
	var done []protocol.Action
	d := s.dashboard(t, delayed(s, "pool#2"), func(c *setup.Config) {
		c.Access = behindProxy(t)
		operates(c, func(_ protocol.Subject, a protocol.Action) error {
			done = append(done, a)
			return nil
		}, protocol.ActionEndDelay)
	})
	link := strings.ReplaceAll(endLink("pool#2"), "#", "%23")
	w := post(d, "chief", link, endForm("pool#2"))
	if w.Code != http.StatusSeeOther || w.Header().Get("Location") != "/lock?name=pool" || len(done) != 1 {
		t.Errorf("%d %v, did %v", w.Code, w.Header(), done)
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
				publishing(func(p *staleness.Policy) { p.LockDelay = c.standard })(config)
				operates(config, func(on protocol.Subject, _ protocol.Action) error {
					got = on.Follows
					return nil
				}, protocol.ActionForceUnlock)
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
