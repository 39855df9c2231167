package dashboard_test

import (
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/dashboard/setup"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

func TestAPausedUnlockerIsExplained(t *testing.T) {
	s := busy()
	s.add(hold{name: "reports", owner: "o", held: time.Hour, alert: -time.Hour, unlock: -2 * time.Minute})
	d := s.dashboard(t)
	for rule, says := range map[staleness.Rule]string{
		staleness.Gap: "reports should have been removed 1m ago: " +
			"the unlocker was offline and is giving holders time to extend.",
		staleness.Stale:    "Unlockers hold back removals: the unlocker's view of the locks is out of date.",
		staleness.Etcd:     "Unlockers hold back removals: etcd takes no writes, so holders cannot extend either.",
		staleness.Clock:    "Unlockers hold back removals: the unlocker's clock cannot be trusted.",
		staleness.Revision: "Unlockers hold back removals: etcd went back to an older revision.",
		staleness.Brake:    "Unlockers slow removals down: too many locks are due at once.",
		"something new":    "Unlockers hold back removals: something new.",
	} {
		s.unlockers = s.unlockers[:1]
		s.unlockers[0].HeldBack = []string{string(rule)}
		wantWords(t, ok(t, d, "/"), says)
		if status := words(ok(t, d, "/status")); strings.Contains(status, "Holds back") {
			t.Error("the status says that an unlocker holds back")
		}
		s.unlockers = append(s.unlockers,
			protocol.Unlocker{Presence: metadata.Presence{ID: "eu-2", Mode: "auto-unlock"}, Arrived: s.now})
		if text := words(ok(t, d, "/")); strings.Contains(text, "Auto-unlock is") {
			t.Errorf("%s: auto-unlock is said to be paused although another unlocker removes", rule)
		}
	}
}

func TestALongNameIsNotSaidToBeForeign(t *testing.T) {
	s := newScene()
	for _, name := range []string{strings.Repeat("long/", 300), "caf\u00e9/menu", strings.Repeat("long/", 300) +
		"\u0435"} {
		s.add(hold{name: name, owner: "o", held: time.Hour, alert: time.Hour, unlock: 2 * time.Hour})
		s.wait(name, "w", time.Minute)
	}
	d := s.dashboard(t)
	for path, want := range map[string]int{"/": 1, "/waiting": 1, "/lock?name=" + strings.Repeat("long/", 300): 0,
		"/lock?name=caf%C3%A9/menu":                             1,
		"/lock?name=" + strings.Repeat("long/", 300) + "%D0%B5": 1} {
		if n := strings.Count(ok(t, d, path), "non-ASCII name"); n != want {
			t.Errorf("%.40s says of %d names that they are not ASCII, want %d", path, n, want)
		}
	}
}

func TestAnEndedHoldHasNoDeadlinesAhead(t *testing.T) {
	s := lived(t)
	e := s.over(stuck, metadata.EndedForced, "bob", "it hung", time.Hour, time.Minute)
	delete(s.endings, e.UUID)
	e.UUID = uuid("ended")
	e.AlertAt = metadata.Time{Time: s.now.Add(-30 * time.Second)}
	e.AutoUnlockAt = metadata.Time{Time: s.now.Add(100 * time.Minute)}
	s.endings[e.UUID] = &e
	page := ok(t, s.dashboard(t), "/lock?name="+stuck+"&hold="+uuid("ended"))
	wantWords(t, page, "alert not reached 2026-11-21 03:12:11 UTC", "auto-unlock not reached 2026-11-21 04:52:41 UTC")
	if strings.Contains(words(page), "auto-unlock in 1h") {
		t.Error("a hold that is over is said to be auto-unlocked")
	}
}

func TestARowWithoutBadgeKeepsItsColumn(t *testing.T) {
	s := newScene()
	s.wait("free", "w", time.Minute)
	if page := ok(t, s.dashboard(t), "/waiting"); !strings.Contains(page,
		`<th scope="row"><span class="state"></span> <a class="mono" href="/lock?name=free">`) {
		t.Error("the name of a lock that nobody holds stands where the badges are")
	}
}

func TestForceUnlockWhileStaleLooksAgain(t *testing.T) {
	s := lived(t)
	s.fresh.Heard = s.now.Add(-4 * time.Minute)
	d, _ := operated(t, s)
	path := "/unlock?name=" + stuck + "&hold=" + uuid(stuck)
	for w, refresh := range map[*httptest.ResponseRecorder]string{get(d, path, "X-Forwarded-User", "chief"): "5",
		post(d, "chief", path, s.wanted(stuck)): ""} {
		if w.Code != http.StatusPreconditionFailed || w.Header().Get("Refresh") != refresh {
			t.Errorf("it answers %d, and looks again after %q s", w.Code, w.Header().Get("Refresh"))
		}
	}
}

func TestAFormThatCannotBeShownLeadsBack(t *testing.T) {
	s := lived(t)
	s.away = errAway // and the silence is too short to be noticed
	for _, form := range []string{"unlock", "ask", "extend", "acknowledge"} {
		d, _ := operated(t, s, marking(t, s, &[]protocol.Action{}), func(c *setup.Config) {
			operates(c, func(protocol.Subject, protocol.Action) error { return errAway }, protocol.ActionForceUnlock)
		})
		w := get(d, "/"+form+"?name="+stuck+"&hold="+uuid(stuck)+"&from=q%3Dbilling", "X-Forwarded-User", "chief")
		if w.Code != http.StatusServiceUnavailable || w.Header().Get("Refresh") != "5" {
			t.Errorf("%s answers %d, and looks again after %q s", form, w.Code, w.Header().Get("Refresh"))
		}
		wantWords(t, w.Body.String(), "Not now The form cannot be shown: timeout.", "Back to the lock "+stuck,
			"This page looks again every 5 seconds.", "From a host that reaches etcd: mutexctl ")
		if !strings.Contains(w.Body.String(),
			`href="/lock?name=billing/invoice-run&amp;hold=`+uuid(stuck)+`&amp;from=q=billing"`) {
			t.Errorf("%s: there is no way back to the lock", form)
		}
	}
}

func TestARefusedFormLeadsBack(t *testing.T) {
	s := lived(t)
	d, _ := operated(t, s, marking(t, s, &[]protocol.Action{}))
	unknown := newScene()
	unknown.fresh = protocol.Freshness{Cause: "connection refused"}
	away, _ := operated(t, unknown, marking(t, unknown, &[]protocol.Action{}))
	for _, form := range []string{"unlock", "ask", "extend", "acknowledge"} {
		for name, w := range map[string]*httptest.ResponseRecorder{
			"somebody who may not": get(d, "/"+form+"?name="+stuck+"&hold=1", "X-Forwarded-User", "viewer"),
			"nothing is known":     get(away, "/"+form+"?name="+stuck+"&hold=1", "X-Forwarded-User", "chief"),
		} {
			if !slices.Contains(attributes(w.Body.String(), "href"), "/lock?name="+stuck+"&hold=1") {
				t.Errorf("%s, %s: there is no way back to the lock: %s", form, name, words(w.Body.String()))
			}
		}
	}
}

func TestCopyButtonsSayWhatTheyCopy(t *testing.T) {
	d := lived(t).dashboard(t)
	for _, path := range []string{"/", "/lock?name=" + stuck, "/lock?name=legacy/cron"} {
		labels := map[string]int{}
		for _, button := range regexp.MustCompile(`<button [^>]*class="copy js"[^>]*>copy</button>`).FindAllString(ok(t,
			d, path), -1) {
			label := regexp.MustCompile(`aria-label="(copy [^"]+)"`).FindStringSubmatch(button)
			if label == nil {
				t.Errorf("%s: %s does not say what it copies", path, button)
			} else if labels[label[1]]++; labels[label[1]] == 2 {
				t.Errorf("%s: two buttons say %q", path, label[1])
			}
		}
	}
}

func TestOnlyWhatMayBeAPodIsLookedForInKubernetes(t *testing.T) {
	s := newScene()
	const pod, process = "kubectl get pod ", "ssh HOST ps -o lstart,args -p 17"
	d := s.dashboard(t)
	for host, wants := range map[string][2]bool{ // a pod, a process of a machine
		"vm": {false, true}, "old-box": {false, true}, "db1.example.org": {false, true},
		"orders-7c9d8f6b5-x2k7p": {true, false},
		"node-exporter-zq8ws":    {true, false}, "etcd-0": {true, true}, "web-1234567": {false, true},
		"build-abcde": {false, true}, "x2k7p": {false, true},
	} {
		s.add(hold{name: host, owner: "o", host: host, held: time.Hour, alert: time.Hour, unlock: 2 * time.Hour})
		text := words(ok(t, d, "/lock?name="+host))
		if got := strings.Contains(text, pod+host); got != wants[0] {
			t.Errorf("%s is looked for as a pod: %v", host, got)
		}
		if got := strings.Contains(text, strings.Replace(process, "HOST", host, 1)); got != wants[1] {
			t.Errorf("%s is looked for as a machine: %v", host, got)
		}
	}
}

func TestTimesAheadAreRoundedToTheNearestUnit(t *testing.T) {
	s := newScene()
	for name, ahead := range map[string]time.Duration{
		"a": 5*time.Minute - time.Second, "b": 4*time.Minute + 29*time.Second, "c": 2 * time.Minute,
		"d": 119 * time.Second,
		"e": 59*time.Minute + 40*time.Second, "f": 24*time.Hour - 10*time.Second, "g": 3*24*time.Hour + 40*time.Minute,
		"h": 240*time.Hour - time.Minute,
	} {
		s.add(hold{name: name, owner: "o", held: 5*time.Minute - time.Second, alert: ahead,
			unlock: ahead + 1000*time.Hour})
	}
	page := ok(t, s.dashboard(t), "/?sort=name")
	wantWords(t, page, "a o unknown 4m in 5m", "b o unknown 4m in 4m", "c o unknown 4m in 2m", "d o unknown 4m in 1:59",
		"e o unknown 4m in 1h",
		"f o unknown 4m in 1d", "g o unknown 4m in 3d 1h", "h o unknown 4m in 10d")
}
