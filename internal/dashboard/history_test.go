package dashboard_test

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/dashboard/access"
	"github.com/clustermutex/unlocker/internal/dashboard/app"
	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// withAudit gives every caller from the proxy all permissions, and a name.
func withAudit(c *app.Config) {
	c.Access = access.Config{Source: access.SourceBasic, KnownUser: func(string) bool { return true },
		Permissions: func() *access.Permissions {
			return &access.Permissions{Everyone: []access.Permission{access.View, access.Backtrace, access.Audit}}
		}}
}

// over adds a past hold to the scene, which began and ended this long ago.
func (s *scene) over(lock, how, by, why string, began, ended time.Duration) metadata.Ending {
	s.revision++
	r := metadata.Record{Name: lock, UUID: uuid(fmt.Sprint(lock, s.revision)), Token: s.revision,
		Identity: metadata.Identity{Owner: "billing", Hostname: "billing-1", PID: 3, Purpose: "nightly invoices"},
		LockedAt: s.now.Add(-began), AlertAt: s.now.Add(-began + 10*time.Minute), AutoUnlockAt: s.now.Add(-ended)}
	e := lockrecord.NewEnding(&r, how, by, why, s.now.Add(-ended))
	if how != metadata.EndingReleased {
		s.endings[r.UUID] = &e
	}
	return e
}

// lived is the busy night with a history.
func lived(t testing.TB) *scene {
	t.Helper()
	s := busy()
	s.over(stuck, metadata.EndingForced, "ann@example.org", "the pod is dead, node lost", 3*time.Hour, 2*time.Hour)
	s.over("catalog/sync/eu", metadata.EndingAutoUnlocked, "eu-1", "its deadline passed", 9*time.Hour, 8*time.Hour)
	s.actions = []protocol.Action{{ID: "a1", At: metadata.Time{Time: s.now.Add(-2 * time.Hour)},
		Actor: "ann@example.org", Source: "header", Client: "198.51.100.7", UserAgent: "curl/8.5.0",
		Verb: "force-unlock",
		Lock: stuck, UUID: uuid("x"), Token: 7, Revision: 9, Holder: "billing on billing-1:3 for 1h",
		Reason: "the pod is dead, node lost", Ticket: "OPS-12", Result: "success"}}
	return s
}

func TestHistoryShowsHowHoldsEnded(t *testing.T) {
	s := lived(t)
	d := s.dashboard(t)
	released := s.over("drm/rotate-keys", metadata.EndingReleased, "", "", time.Hour, 0)
	ok(t, d, "/history") // the dashboard watches from here on
	s.now = s.now.Add(time.Minute)
	s.fresh.HeardAt = s.now
	d.Ended(&metadata.Record{Name: released.Name, UUID: released.UUID, Token: released.Token,
		Identity: metadata.Identity{Owner: "drm"}, LockedAt: released.LockedAt.Time}, nil)
	for _, e := range s.endings {
		if e.Cause == metadata.EndingForced { // etcd knows better
			d.Ended(&metadata.Record{Name: e.Name, UUID: e.UUID, Token: e.Token}, nil)
		}
	}

	page := ok(t, d, "/history")
	wantWords(t, page, "started watching 1m ago", "3 holds")
	if n := strings.Count(page, "</svg>released"); n != 1 {
		t.Errorf("%d holds were released, one of them was forced: %s", n, words(page))
	}
	for query, want := range map[string][]string{
		"owner:drm": {"drm/rotate-keys"}, "name:billing/*": {stuck}, "held:>90m": nil,
		"state:expired": {stuck, "catalog/sync/eu"}, "node": nil, "-owner:drm -catalog": {stuck},
	} {
		data, meta := fetch[lock](t, d, "/api/v1/history?q="+url.QueryEscape(query))
		var got []string
		for _, h := range data["holds"].([]any) {
			got = append(got, h.(lock)["name"].(string))
		}
		if !slices.Equal(got, want) || meta["matched"] != float64(len(want)) || meta["total"] != 3.0 {
			t.Errorf("%s finds %v (%v), want %v", query, got, meta, want)
		}
	}
	link := "/lock?name=drm/rotate-keys&hold=" + released.UUID
	wantWords(t, ok(t, d, link), "This hold ended 0s ago (released).")
}

func TestEqualEndingsInARowAreOneEntry(t *testing.T) {
	s := newScene()
	for i, how := range []string{metadata.EndingAutoUnlocked, metadata.EndingAutoUnlocked, metadata.EndingAutoUnlocked,
		metadata.EndingForced, metadata.EndingAutoUnlocked, metadata.EndingAutoUnlocked} {
		for _, name := range []string{"a", "b"} {
			s.over(name, how, "eu-1", "", time.Duration(i+2)*time.Hour, time.Duration(i+1)*time.Hour)
		}
	}
	for path, want := range map[string]int{"/history": 6, "/history?q=name:=a": 3, "/lock?name=a": 6} {
		page := ok(t, s.dashboard(t), path)
		wantWords(t, page, "and 2 more like it, the first 3h ago")
		if n := strings.Count(page, `"badge released`); n != want {
			t.Errorf("%s has %d badges, want %d", path, n, want)
		}
	}
}

func TestHistoryPagesHaveNoGapsOrDuplicates(t *testing.T) {
	s := busy()
	for i := range 57 {
		// four at a time
		s.over(fmt.Sprint("lock-", i), metadata.EndingAutoUnlocked, "eu-1", "", time.Hour,
			time.Duration(i/4)*time.Minute)
	}
	d := s.dashboard(t)
	all, _, _ := paged(t, d, "/api/v1/history?limit=10", "holds")
	seen := map[any]bool{}
	for _, h := range all {
		seen[h["name"]] = true
	}
	if len(seen) != 57 || len(all) != 57 {
		t.Errorf("%d of 57 holds were seen, %d in all", len(seen), len(all))
	}
	data, _ := fetch[lock](t, d, "/api/v1/history?from=2026-11-21T03:10:41Z&to=2026-11-21T03:11:41Z")
	if n := len(data["holds"].([]any)); n != 4 {
		t.Errorf("%d holds ended in that minute", n)
	}
}

func TestHistoryQueriesToASilentEtcdAreShared(t *testing.T) {
	s := lived(t)
	s.away = errAway
	asked := 0
	d := s.dashboard(t, func(c *app.Config) {
		of(c).history = func(context.Context, int) ([]metadata.Ending, error) { asked++; return nil, errAway }
	})
	for range 9 {
		wantWords(t, ok(t, d, "/lock?name="+stuck), "etcd could not be read: ")
	}
	if asked != 1 {
		t.Errorf("etcd was asked %d times in the same moment", asked)
	}
	s.now = s.now.Add(6 * time.Second)
	if ok(t, d, "/history"); asked != 2 {
		t.Errorf("six seconds later etcd was asked %d times in all", asked)
	}
}

func TestEachPageHasOneSearchBox(t *testing.T) {
	s := lived(t)
	d, _ := operated(t, s)
	for path, what := range map[string]string{"/": "locks", "/waiting": "waiting", "/history": "history",
		"/audit": "audit", "/status": "locks", "/help": "locks", "/lock?name=" + stuck: "locks"} {
		page := get(d, path+map[bool]string{true: "&q=ann", false: "?q=ann"}[strings.Contains(path, "?")],
			"X-Forwarded-User", "chief").Body.String()
		target, kept := path, 1
		if what == "locks" {
			target, kept = "/", map[string]int{"/": 1}[path]
		}
		for want, n := range map[string]int{`role="search"`: 1, `role="search" action="` + target + `"`: 1,
			`name="q" type="search" value="ann"`: kept,
			`placeholder="search ` + what + `"`:  1} {
			if strings.Count(page, want) != n {
				t.Errorf("%s does not have %d boxes with %s", path, n, want)
			}
		}
	}
}
