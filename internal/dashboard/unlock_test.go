package dashboard_test

import (
	"cmp"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/clustermutex/unlocker/internal/dashboard"
	"github.com/clustermutex/unlocker/internal/dashboard/app"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// operated returns a dashboard of the scene with force unlock enabled, and the requests it made to etcd.
func operated(t testing.TB, s *scene, changes ...func(*app.Config)) (*dashboard.Dashboard, *[]protocol.Action) {
	t.Helper()
	var done []protocol.Action
	d := s.dashboard(t, append([]func(*app.Config){func(c *app.Config) {
		c.Access = behindProxy(t)
		operates(c, func(on protocol.ActionTarget, a protocol.Action) error {
			if on.IfUnchanged && on.Hold.Name == s.moved {
				return metadata.ErrChanged
			}
			s.change(func() {
				done = append(done, a)
				removal := protocol.ForcedRemoval(on.Hold, a, on.LockDelayAfter)
				s.endings[on.Hold.HistoryID()] = &removal.Ending
				delete(s.documents, on.Hold.Name)
			})
			return nil
		}, protocol.VerbForceUnlock)
	}}, changes...)...)
	return d, &done
}

// wanted returns the form that the confirmation page sends for a lock of the scene.
func (s *scene) wanted(name string) url.Values {
	r := s.documents[name]
	return url.Values{"hold": {r.UUID}, "token": {fmt.Sprint(r.Token)}, "revision": {fmt.Sprint(r.Revision)},
		"typed": {name}, "reason": {"the pod is dead, node lost"}, "ticket": {"OPS-12"}}
}

// post sends a form like a browser.
func post(d http.Handler, who, link string, form url.Values, headers ...string) *httptest.ResponseRecorder {
	return send(d, who, link, "application/x-www-form-urlencoded", form.Encode(), headers...)
}

func send(d http.Handler, who, link, kind, body string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest("POST", link, strings.NewReader(body))
	r.Header.Set("Content-Type", kind)
	r.Header.Set("X-Forwarded-User", who)
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	d.ServeHTTP(w, r)
	return w
}

func unlockLink(s *scene, name string) string {
	return "/unlock?name=" + name + "&hold=" + s.documents[name].UUID
}

const stuck = "billing/invoice-run"

func TestForceUnlockLogsActorAndHolder(t *testing.T) {
	s := busy()
	d, done := operated(t, s)
	link := unlockLink(s, stuck)
	form := s.wanted(stuck)
	w := post(d, "chief", link, form, "X-Forwarded-For", "203.0.113.9, 198.51.100.7", "User-Agent", "a browser\x1b")
	a := (*done)[0]
	if a.Source != "header" || a.Client != "198.51.100.7" || a.UserAgent != `a browser\x1b` || a.Result != "success" ||
		!strings.Contains(a.Holder, "billing on billing-7f9c:17 for 22m") {
		t.Errorf("recorded is %+v", a)
	}
	page := get(d, w.Header().Get("Location"), "X-Forwarded-User", "chief").Body.String()
	wantWords(t, page, "This hold ended 0s ago (force-unlocked by chief).", "the pod is dead, node lost (OPS-12)")
	for _, part := range []string{`"actor":"chief"`, `"client":"198.51.100.7"`, `"audit_id":"` + a.ID,
		`"reason":"the pod is dead, node lost"`} {
		if !strings.Contains(s.log.String(), part) {
			t.Errorf("the log has no %s: %s", part, &s.log)
		}
	}
	again := post(d, "chief", link, form)
	if again.Code != http.StatusConflict || len(*done) != 1 {
		t.Errorf("the second click is answered with %d, and %d were done", again.Code, len(*done))
	}
	wantWords(t, again.Body.String(),
		"Nothing was done. The hold that you saw has ended: force-unlocked by chief 0s ago. Nobody holds the lock now.")
	wantForced(t, d, 1, 1, 0, 0)
}

// wantForced checks the counter of force unlocks.
func wantForced(t *testing.T, d *dashboard.Dashboard, success, conflict, denied, failed int) {
	t.Helper()
	for result, want := range map[string]int{"success": success, "conflict": conflict, "denied": denied,
		"error": failed} {
		if n := sample(t, d, "mutexdash_force_unlocks_total", result); n != float64(want) {
			t.Errorf("%v force unlocks are counted as %s, want %d", n, result, want)
		}
	}
}

func TestForceUnlockWithUnknownOutcomeIsRechecked(t *testing.T) {
	for name, c := range map[string]struct {
		verb   int // in verbs
		really func(s *scene, r *metadata.Record, ours metadata.Ending)
		status int
		says   string
	}{
		"done all the same": {0, func(s *scene, r *metadata.Record, ours metadata.Ending) {
			s.endings[r.UUID] = &ours
			delete(s.documents, stuck)
		}, http.StatusSeeOther, "Done."},
		"still there": {0, func(*scene, *metadata.Record, metadata.Ending) {}, http.StatusGatewayTimeout,
			"The hold is still there, but the change may still arrive."},
		"nobody can tell": {0, func(s *scene, _ *metadata.Record, _ metadata.Ending) { s.away = errAway },
			http.StatusGatewayTimeout,
			"Look at the lock before you try again."},
		"somebody else did": {0, func(s *scene, r *metadata.Record, other metadata.Ending) {
			other.By = "bob"
			s.endings[r.UUID] = &other
			delete(s.documents, stuck)
		}, http.StatusConflict, "Nothing was done. The hold that you saw has ended: force-unlocked by bob"},
		"gone, and nobody recorded how": {0, func(s *scene, _ *metadata.Record, _ metadata.Ending) {
			delete(s.documents, stuck)
		}, http.StatusGatewayTimeout, "you try again. The hold that you saw has ended. Nobody holds the lock now."},
		"extended, perhaps, before somebody ended it": {2, func(s *scene, r *metadata.Record, _ metadata.Ending) {
			s.endings[r.UUID] = &metadata.Ending{Name: stuck, UUID: r.UUID, Cause: metadata.EndingForced, By: "bob"}
			delete(s.documents, stuck)
		}, http.StatusGatewayTimeout, "you try again. The hold that you saw has ended: force-unlocked by bob"},
		"held again by the same uuid": {0, func(s *scene, _ *metadata.Record, _ metadata.Ending) {
			s.add(hold{name: stuck, owner: "crm", host: "crm-0", held: time.Second, alert: time.Hour,
				unlock: time.Hour})
		}, http.StatusGatewayTimeout, "now held by crm on crm-0:17"},
	} {
		t.Run(name, func(t *testing.T) {
			s := busy()
			v := verbs(s)[c.verb]
			asked := 0
			d, _ := operated(t, s, func(config *app.Config) {
				operates(config, func(on protocol.ActionTarget, a protocol.Action) error {
					asked++
					c.really(s, on.Hold, protocol.ForcedRemoval(on.Hold, a, on.LockDelayAfter).Ending)
					return fmt.Errorf("%w: timeout", metadata.ErrOutcomeUnknown)
				}, v.action)
			})
			w := post(d, "chief", v.link(), v.form)
			if w.Code != c.status || asked != 1 || !strings.Contains(words(w.Body.String()), c.says) {
				t.Errorf("the answer is %d after %d tries: %s", w.Code, asked, words(w.Body.String()))
			}
		})
	}
}

// The form for all holds that a search finds: it leaves out the living, and spares what has changed since.
func TestForceUnlockOfAllThatASearchFinds(t *testing.T) {
	const link = "/unlock?q=host:node-7"
	dead := func(s *scene) {
		for i := range 4 {
			s.add(hold{name: fmt.Sprint("node/", i), owner: "crm", host: "node-7", held: time.Hour, alert: time.Hour})
		}
		s.add(hold{name: "node/lives", owner: "crm", host: "node-7", held: time.Second, alert: time.Hour})
	}
	for name, c := range map[string]struct {
		who, link, set string
		headers        []string
		change         func(s *scene) // while the form is open
		status         int
		says           string
		ended          int
	}{
		"all": {status: 200, says: "4 of 4 holds ended.", ended: 4},
		"but one that has changed": {change: func(s *scene) {
			i := slices.IndexFunc(s.locks, func(r *metadata.Record) bool { return r.Name == "node/1" })
			extended := *s.locks[i]
			extended.Revision++
			s.locks = slices.Clone(s.locks)
			s.locks[i] = &extended
		}, status: 200, says: "3 of 4 holds ended. 1 spared: changed or ended since you looked.", ended: 3},
		"but one that changes at that moment": {change: func(s *scene) { s.moved = "node/1" }, status: 200,
			says: "3 of 4 holds ended. 1 spared", ended: 3},
		"wrong number":  {set: "typed=5", status: 422, says: "That is not the number of the holds"},
		"no reason":     {set: "reason=dead", status: 422, says: "4 characters"},
		"no holds":      {set: "hold=", status: 422, says: "does not say which holds"},
		"unknown holds": {set: "hold=a b. .c 7.x", status: 200, says: "0 of 4 holds ended. 4 spared"},
		"too many":      {set: "hold=" + strings.Repeat("a ", 1001), status: 422, says: "at most 1,000"},
		"no search":     {link: "/unlock?q=", status: 422, says: "Search first"},
		"half a search": {link: "/unlock?q=held:x", status: 422, says: "not understood"},
		"no permission": {who: "viewer", status: 403, says: "needs the permission unlock"},
		"of others":     {who: "catalog-only", status: 200, says: "0 of 4 holds ended. 4 failed: look again."},
		"another site":  {headers: []string{"Sec-Fetch-Site", "cross-site"}, status: 403, says: "another site"},
	} {
		t.Run(name, func(t *testing.T) {
			s := busy()
			dead(s)
			d, done := operated(t, s)
			for who, may := range map[string]bool{"viewer": false, "chief": true} {
				list := get(d, "/?q=host:node-7", "X-Forwarded-User", who).Body.String()
				if slices.Contains(attributes(list, "href"), link) != may {
					t.Errorf("whether the list leads %s to the form: want %v", who, may)
				}
			}
			page := get(d, link, "X-Forwarded-User", "chief").Body.String()
			wantWords(t, page, "1 hold left out, alive within the last minute: include it.", "Force unlock 4 holds")
			form := url.Values{"typed": {"4"}, "reason": {"node-7 burnt down"},
				"hold": {regexp.MustCompile(`name="hold" value="(.*?)"`).FindStringSubmatch(page)[1]}}
			if key, value, ok := strings.Cut(c.set, "="); ok {
				form.Set(key, value)
			}
			if c.change != nil {
				s.change(func() { c.change(s) })
				s.tick(2 * time.Second)
			}
			w := post(d, cmp.Or(c.who, "chief"), cmp.Or(c.link, link), form, c.headers...)
			if w.Code != c.status || len(*done) != c.ended {
				t.Errorf("the answer is %d, %d were ended", w.Code, len(*done))
			}
			wantWords(t, w.Body.String(), c.says)
		})
	}
}

func TestForceUnlocksAreRateLimited(t *testing.T) {
	s := busy()
	d, done := operated(t, s)
	form := s.wanted(stuck)
	form.Set("typed", "wrong") // a try that changes nothing
	for i := range 10 {
		if w := post(d, "chief", unlockLink(s, stuck), form); w.Code != 422 {
			t.Fatalf("try %d is answered with %d", i, w.Code)
		}
	}
	w := post(d, "chief", unlockLink(s, stuck), form)
	if w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") == "" {
		t.Errorf("the eleventh try is answered with %d %v", w.Code, w.Header())
	}
	if w := post(d, "unlocker", unlockLink(s, stuck), form); w.Code != 422 {
		t.Errorf("another user got status %d", w.Code)
	}
	for i := range 30 {
		name := fmt.Sprint("lock", i)
		s.add(hold{name: name, held: time.Hour, alert: time.Hour, unlock: 2 * time.Hour})
		post(d, fmt.Sprint("u", i), unlockLink(s, name), s.wanted(name), "X-Forwarded-Groups", "on-call")
	}
	if w := post(d, "late", unlockLink(s, stuck), s.wanted(stuck), "X-Forwarded-Groups",
		"on-call"); w.Code != http.StatusTooManyRequests || len(*done) != 30 {
		t.Errorf("after %d of all the next is answered with %d", len(*done), w.Code)
	}
	s.now = s.now.Add(time.Minute)
	s.fresh.HeardAt = s.now
	if w := post(d, "chief", unlockLink(s, stuck), s.wanted(stuck)); w.Code != http.StatusSeeOther || len(*done) != 31 {
		t.Errorf("a minute later the answer is %d", w.Code)
	}
}

func TestForceUnlockOfHostileNames(t *testing.T) {
	s := infested()
	d, done := operated(t, s)
	shown := regexp.MustCompile(`(?s)<label for="typed">.*?<code>(.*?)</code>`)
	const all = "/unlock?q=held:%3E1m"
	checkHarmless(t, all, get(d, all, "X-Forwarded-User", "chief").Body.String())
	for _, name := range hostile() {
		if len(name) > 4000 {
			continue // no request can carry it
		}
		s.tick(time.Minute)
		*done = nil
		link := "/unlock?name_b64=" + base64.RawURLEncoding.EncodeToString([]byte(name)) + "&hold=" + uuid(name)
		w := get(d, link, "X-Forwarded-User", "chief")
		if w.Code != 200 {
			t.Errorf("%.40q: %d", name, w.Code)
			continue
		}
		checkHarmless(t, link, w.Body.String())
		typed := html.UnescapeString(shown.FindStringSubmatch(w.Body.String())[1])
		form := s.wanted(name)
		form.Set("typed", typed)
		if w := post(d, "chief", link, form); w.Code != http.StatusSeeOther || len(*done) != 1 ||
			(*done)[0].Lock != name {
			t.Errorf("%.40q, typed as shown (%q): %d %v", name, typed, w.Code, *done)
		}
		logged := strings.TrimSpace(s.log.String())
		last := logged[strings.LastIndex(logged, "\n")+1:]
		if !json.Valid([]byte(last)) || deceptive(last) >= 0 {
			t.Errorf("%.40q: the log line is %q", name, last)
		}
	}
}

// sample returns the value of a dashboard metric with this result.
func sample(t *testing.T, d *dashboard.Dashboard, name, result string) float64 {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(d)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name && m.GetLabel()[0].GetValue() == result {
				return m.GetCounter().GetValue()
			}
		}
	}
	return -1
}

func TestHSTSIsSentOnlyOverTLS(t *testing.T) {
	d := busy().dashboard(t, func(c *app.Config) { c.HSTS = 180 * 24 * time.Hour })
	r := httptest.NewRequest("GET", "/", nil)
	for want, state := range map[string]*tls.ConnectionState{"": nil, "max-age=15552000": {}} {
		r.TLS = state
		w := httptest.NewRecorder()
		d.ServeHTTP(w, r)
		if got := w.Header().Get("Strict-Transport-Security"); got != want {
			t.Errorf("with TLS %v: %q, want %q", state != nil, got, want)
		}
	}
}
