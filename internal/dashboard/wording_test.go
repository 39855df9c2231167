package dashboard_test

import (
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/dashboard/locks"
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

func TestAFormThatCannotBeShownLeadsBack(t *testing.T) {
	silent := lived(t)
	silent.away = errAway // and the silence is too short to be noticed
	stale := lived(t)
	stale.fresh.Heard = stale.now.Add(-4 * time.Minute)
	unknown := newScene()
	unknown.fresh = protocol.Freshness{Cause: "connection refused"}
	for name, c := range map[string]struct {
		s                  *scene
		who                string
		status             int
		refresh, say, back string
	}{
		"etcd is silent": {silent, "chief", http.StatusServiceUnavailable, "5", "The form cannot be shown: timeout. " +
			"Nothing was done. This page looks again every 5 seconds. From a host that reaches etcd: mutexctl ",
			"&from=q=billing"},
		"the data is stale": {stale, "chief", http.StatusPreconditionFailed, "5",
			"From a host that reaches etcd: mutexctl ", "&from=q=billing"},
		"nothing is known":     {unknown, "chief", http.StatusServiceUnavailable, "5", "every 5 seconds.", ""},
		"somebody who may not": {lived(t), "viewer", http.StatusForbidden, "", "needs the permission", ""},
	} {
		d := operators(t, c.s, new([]protocol.Action), new(error))
		for _, form := range []string{"unlock", "ask", "extend", "acknowledge"} {
			w := get(d, "/"+form+"?name="+stuck+"&hold="+uuid(stuck)+"&from=q%3Dbilling", "X-Forwarded-User", c.who)
			if w.Code != c.status || w.Header().Get("Refresh") != c.refresh {
				t.Errorf("%s: %s answers %d, and looks again after %q s", name, form, w.Code, w.Header().Get("Refresh"))
			}
			wantWords(t, w.Body.String(), c.say)
			back := "/lock?name=" + stuck + "&hold=" + uuid(stuck) + c.back
			if !slices.Contains(attributes(w.Body.String(), "href"), back) {
				t.Errorf("%s: there is no way back from %s to the lock", name, form)
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
