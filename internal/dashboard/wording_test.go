package dashboard_test

import (
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/dashboard/locks"
	"github.com/clustermutex/unlocker/internal/dashboard/setup"
	"github.com/clustermutex/unlocker/internal/dashboard/site"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

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

// States and endings have a badge, an icon and a term that finds them.
func TestEveryWordForAStateOrAnEndingIsDrawnExplainedAndFound(t *testing.T) {
	d := busy().dashboard(t)
	style := ok(t, d, regexp.MustCompile(`/[^" ]*app[^" ]*\.css[^" ]*`).FindString(ok(t, d, "/")))
	help := ok(t, d, "/help")
	drawn := func(word, icon string) {
		t.Helper()
		if !strings.Contains(style, ".badge."+word) {
			t.Errorf("the badge of %s has no colour", word)
		}
		if !strings.Contains(help, `<symbol id="i-`+icon+`"`) {
			t.Errorf("%s has no icon", word)
		}
	}
	found := func(term string) {
		t.Helper()
		if page := ok(t, d, "/history?q="+term); strings.Contains(page, "Left out") {
			t.Errorf("nothing is found by %s", term)
		}
	}
	for _, s := range metadata.States() {
		drawn(string(s.State), string(s.State))
		found("state:" + string(s.State))
		wantWords(t, help, string(s.State)+" "+s.Means)
		if w := get(d, "/icon.svg?look="+string(s.State)+"&n=1"); w.Code != http.StatusOK {
			t.Errorf("the tab of %s has no icon: %d", s.State, w.Code)
		}
	}
	for _, e := range metadata.Endings() {
		if e.Ended != metadata.EndedYielded { // which looks like one that was released
			drawn(e.Word, site.EndedIcon(e.Word))
		}
		found(locks.EndedTerm(e.Word))
		if !strings.Contains(help, e.Word+"</code>") {
			t.Errorf("the help does not name %s", e.Word)
		}
	}
}
