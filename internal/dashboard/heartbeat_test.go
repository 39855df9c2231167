package dashboard_test

import (
	"strings"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/pkg/metadata"
)

// beating puts a lock into the scene whose heartbeat puts off a deadline of a minute every 20 seconds, last at the
// given age.
func beating(s *scene, name string, age time.Duration) {
	at := func(ago time.Duration) string { return metadata.FormatTime(s.now.Add(-ago)) }
	s.put(name,
		metadata.Field{Name: "uuid", Value: uuid(name), Version: 1}, metadata.Field{Name: "owner", Value: "search",
			Version: 1},
		metadata.Field{Name: "locked_at", Value: at(age + 10*time.Minute), Version: 1},
		metadata.Field{Name: "alive", Value: metadata.FormatAlive(s.now.Add(-age), ""), Version: 30},
		metadata.Field{Name: "alert_at", Value: at(age - time.Minute), Version: 31},
		metadata.Field{Name: "auto_unlock_at", Value: at(age - time.Minute), Version: 31})
}

func TestAHealthyHeartbeatIsNotUrgent(t *testing.T) {
	s := newScene()
	beating(s, "search/reindex", 3*time.Second)
	s.add(hold{name: "just/taken", owner: "o", held: time.Second, alert: 59 * time.Second, unlock: 59 * time.Second})
	s.add(hold{name: "short/job", owner: "o", held: 5 * time.Second, alert: 15 * time.Second, unlock: 55 * time.Second})
	d := s.dashboard(t)
	wantWords(t, ok(t, d, "/"),
		"held just/taken o unknown 1s at unlock 0:59",
		"held search/reindex search unknown 10m if silent 0:57",
		"held short/job o unknown 5s in 0:15",
		"3 locks 3 held 0 alerting 0 expiring")
	wantWords(t, ok(t, d, "/lock?name=search/reindex"),
		"search/reindex is held in time, its process lives (3s ago). If it falls silent, alert and auto-unlock in "+
			"0:57 under a minute. Held by search for 10m.",
		"alert if silent 2026-11-21 03:13:38 UTC", "auto-unlock in 0:57 under a minute 2026-11-21 03:13:38 UTC")
	wantWords(t, ok(t, d, "/lock?name=just/taken"),
		"just/taken is held in time. Alert and auto-unlock in 0:59 under a minute. Held by o for 1s.")
	for _, l := range first(fetch[[]lock](t, d, "/api/v1/locks")) {
		if l["expiring"] != false || l["state"] != "held" {
			t.Errorf("the API says of %s: %s, expiring %v", l["name"], l["state"], l["expiring"])
		}
	}
}

func TestAHeartbeatThatFellSilentIsExpiringBelowWhatAlerts(t *testing.T) {
	s := newScene()
	beating(s, "search/reindex", 50*time.Second)
	s.add(hold{name: "orders/settle", owner: "orders", held: 40 * time.Minute, alert: -27 * time.Minute,
		unlock: 30 * time.Second})
	d := s.dashboard(t)
	page := ok(t, d, "/")
	wantWords(t, page, "expiring search/reindex search unknown 10m if silent 0:10",
		"alerting orders/settle orders unknown 40m 27m ago 0:30")
	if text := words(page); strings.Index(text, "alerting orders/settle") > strings.Index(text,
		"expiring search/reindex") {
		t.Error("a lock that is expiring stands above one that alerts")
	}
	if found := names(t, d, "/api/v1/locks?q=state:expiring"); len(found) != 1 || found[0] != "search/reindex" {
		t.Errorf("state:expiring finds %q", found)
	}
	for name, want := range map[string]bool{"orders/settle": false, "search/reindex": true} {
		if l, _ := fetch[lock](t, d, "/api/v1/lock?name="+name); l["expiring"] != want {
			t.Errorf("the API says that %s is expiring: %v", name, l["expiring"])
		}
	}
}

func TestAListTurnsExpiringWithoutAChange(t *testing.T) {
	s := newScene()
	beating(s, "search/reindex", 47*time.Second)
	d := s.dashboard(t)
	wantWords(t, ok(t, d, "/"), "held search/reindex")
	s.now, s.fresh.Heard = s.now.Add(2*time.Second), s.now.Add(2*time.Second)
	wantWords(t, ok(t, d, "/"), "expiring search/reindex")
}

func first[A, B any](a A, _ B) A { return a }
