package dashboard_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/clustermutex/unlocker/internal/dashboard/setup"
	"github.com/clustermutex/unlocker/internal/diagnosis/inconsistent"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

func TestEveryPageSaysHowToGetItAsJSON(t *testing.T) {
	d := lived(t).dashboard(t, withAudit)
	for _, path := range []string{"/?q=owner:billing", "/lock?name=" + stuck, "/waiting?q=x", "/owners?q=x",
		"/history?q=x", "/audit?q=x", "/status"} {
		page := ok(t, d, path)
		commands := attributes(page, "data-copy")
		curl := commands[len(commands)-1]
		// quoted where there is something to quote
		link, found := strings.CutPrefix(strings.ReplaceAll(curl, "'", ""), "curl -s http://example.com")
		if !found || !slices.Contains(attributes(page, "href"), link) ||
			get(d, link).Header().Get("Content-Type") != "application/json" {
			t.Errorf("%s has the command %s", path, curl)
		}
	}
	page := ok(t, d, "/?q=owner:billing&sort=-held")
	if csv := "/locks.csv?q=owner:billing&sort=-held"; !slices.Contains(attributes(page, "href"), csv) ||
		!strings.Contains(ok(t, d, csv), stuck) {
		t.Errorf("the list does not lead to %s", csv)
	}
}

func TestStatusTellsByWhatUnlockersDecideAndWhoDisagrees(t *testing.T) {
	s := newScene()
	d := s.dashboard(t)
	page := ok(t, d, "/status")
	wantWords(t, page, "abandoned locks only reported before their deadlines", "minimum warning 30s",
		"without an alert time alert 1h after they were first seen", "without a deadline removed never")
	if strings.Contains(words(page), "disagree") {
		t.Error("one unlocker disagrees with itself")
	}
	s.unlockers = append(s.unlockers, unlocker("eu-2", s.now), unlocker("eu-3", s.now))
	s.unlockers[1].Sweep.Abandoned = metadata.SweepUnlock
	s.unlockers[1].Sweep.Exclude = []string{"db/*", "\x1b<b>"}
	s.unlockers[2].Mode = "dry-run"
	s.unlockers[2].Sweep = nil // an old one, which removes nothing
	wantWords(t, ok(t, d, "/status"), "abandoned locks unlocked 10s after the proof was seen",
		"Unlockers disagree: mode is auto-unlock for eu-1 and eu-2, dry-run for eu-3.",
		"Unlockers disagree: sweep.abandoned is report for eu-1, unlock for eu-2.",
		`Unlockers disagree: sweep.exclude is empty for eu-1, \x1b<b> db/* for eu-2.`)
	s.unlockers[2].Mode = "auto-unlock"
	wantWords(t, ok(t, d, "/status"), "How stale locks are treated is not known: eu-3 does not publish its policy.")
	s.unlockers = s.unlockers[:1]
	s.unlockers[0].Sweep.Exclude = []string{"db/*", "cron/?"}
	wantWords(t, ok(t, d, "/status"), "never removed db/* cron/?")
}

func TestStatusNamesInconsistentLocks(t *testing.T) {
	s := newScene()
	s.wrong = []inconsistent.Lock{{Name: "pool<b>", Kind: inconsistent.Oversold, Why: "has 4 of 3 permits out"}}
	page := ok(t, s.dashboard(t), "/status")
	wantWords(t, page, "Inconsistent locks 1", "pool<b> has 4 of 3 permits out")
	if !slices.Contains(attributes(page, "href"), "/lock?name=pool%3Cb%3E") {
		t.Errorf("the page does not lead to the lock: %v", attributes(page, "href"))
	}
}

func TestStatusTellsTheMembersOfEtcdAndTheFlags(t *testing.T) {
	s := busy()
	if page := words(ok(t, s.dashboard(t), "/status")); !strings.Contains(page, "endpoint etcd-0:2379") ||
		strings.Contains(page, "Flags") {
		t.Errorf("where the members are not known the page says %s", page)
	}
	s.members = []setup.Member{{Endpoint: "etcd-0:2379", Role: "leader", Version: "3.7.3", Size: 3 << 20,
		Quota: 2 << 30}, {Endpoint: "etcd-1:2379", Problem: "timeout"}}
	s.settings = []setup.Setting{{Name: "web.environment", Value: "prod-eu", Public: true}}
	d := s.dashboard(t)
	wantWords(t, ok(t, d, "/status"), "leader etcd-0:2379 3.7.3, 3 MiB of 2,048 MiB member etcd-1:2379 timeout",
		"web.environment prod-eu")
	data, _ := fetch[lock](t, d, "/api/v1/status")
	members := data["members"].([]any)
	if first, second := members[0].(lock), members[1].(lock); first["role"] != "leader" ||
		first["quota_bytes"] != float64(2<<30) || second["role"] != nil || second["problem"] != "timeout" {
		t.Errorf("the API says %v", members)
	}
}
