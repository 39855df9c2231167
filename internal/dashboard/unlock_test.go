package dashboard_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/clustermutex/unlocker/internal/dashboard"
	"github.com/clustermutex/unlocker/internal/dashboard/setup"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

// operated returns a dashboard of the scene with force unlock enabled, and the requests it made to etcd.
func operated(t testing.TB, s *scene, changes ...func(*setup.Config)) (*dashboard.Dashboard, *[]protocol.Action) {
	t.Helper()
	var done []protocol.Action
	d := s.dashboard(t, append([]func(*setup.Config){func(c *setup.Config) {
		c.Access = behindProxy(t)
		operates(c, func(on protocol.Subject, a protocol.Action) error {
			s.change(func() {
				done = append(done, a)
				removal := protocol.Forced(on.Hold, a, on.Follows)
				s.endings[on.Hold.HistoryID()] = &removal.Ending
				delete(s.documents, on.Hold.Name)
			})
			return nil
		}, protocol.ActionForceUnlock)
	}}, changes...)...)
	return d, &done
}

// wanted is what the confirmation page sends for a lock of the scene.
func (s *scene) wanted(name string) url.Values {
	r := s.documents[name]
	return url.Values{"hold": {r.UUID}, "token": {fmt.Sprint(r.Token)}, "revision": {fmt.Sprint(r.Revision)},
		"typed":  {name},
		"reason": {"the pod is dead, node lost"}, "ticket": {"OPS-12"}}
}

// post sends a form as a browser does.
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

func TestForceUnlockAsksFirstAndThenDoesIt(t *testing.T) {
	s := busy()
	d, done := operated(t, s)
	link := unlockLink(s, stuck)
	form := s.wanted(stuck)

	page := get(d, "/lock?name="+stuck, "X-Forwarded-User", "chief").Body.String()
	if !strings.Contains(page, `href="`+strings.ReplaceAll(link, "&", "&amp;")+`"`) {
		t.Fatalf("the page of the lock does not lead to %s", link)
	}
	w := get(d, link, "X-Forwarded-User", "chief")
	wantWords(t, w.Body.String(), "billing-7f9c:17 is not stopped",
		"The next waiter gets the lock at once: catalog on catalog-0:1, waiting for 9m",
		"unless the lock is extended, the auto-unlock does the same in 1:42",
		"ssh billing-7f9c ps -o lstart,args -p 17", "taken at app/jobs/invoice_run.rb:118", "Force unlock "+stuck)
	if got := w.Header().Get("Referrer-Policy"); got != "same-origin" {
		t.Errorf("with Referrer-Policy %q browsers send no origin with the form", got)
	}
	if page := get(d, link, "X-Forwarded-User", "unlocker").Body.String(); strings.Contains(page, "invoice_run.rb") {
		t.Error("the page shows code to somebody who may not see it")
	}
	if len(*done) != 0 {
		t.Fatalf("looking at the page did %v", *done)
	}

	w = post(d, "chief", link, form, "X-Forwarded-For", "198.51.100.7", "User-Agent", "a browser\x1b")
	if w.Code != http.StatusSeeOther || w.Header().Get("Location") != strings.Replace(link, "unlock?", "lock?", 1) {
		t.Fatalf("the answer is %d %v %s", w.Code, w.Header(), words(w.Body.String()))
	}
	a := (*done)[0]
	if a.Actor != "chief" || a.Source != "header" || a.Client != "198.51.100.7" || a.UserAgent != `a browser\x1b` ||
		a.Lock != stuck || a.UUID != uuid(stuck) || fmt.Sprint(a.Token) != form.Get("token") ||
		a.Reason != form.Get("reason") || a.Ticket != "OPS-12" || a.Result != "success" ||
		!strings.Contains(a.Holder, "billing on billing-7f9c:17 for 22m") {
		t.Errorf("recorded is %+v", a)
	}
	page = get(d, w.Header().Get("Location"), "X-Forwarded-User", "chief").Body.String()
	wantWords(t, page, "This hold ended 0s ago (force-unlocked by chief).", "the pod is dead, node lost (OPS-12)")
	for _, part := range []string{`"audit":"force-unlock"`, `"result":"success"`, `"actor":"chief"`,
		`"client":"198.51.100.7"`, `"audit_id":"` + a.ID, `"reason":"the pod is dead, node lost"`} {
		if !strings.Contains(s.log.String(), part) {
			t.Errorf("the log has no %s: %s", part, &s.log)
		}
	}

	again := post(d, "chief", link, form)
	if again.Code != http.StatusConflict || len(*done) != 1 {
		t.Errorf("the second click is answered with %d, and %d were done", again.Code, len(*done))
	}
	wantWords(t, again.Body.String(),
		"Nothing was done. The hold that you saw is over: force-unlocked by chief 0s ago. Nobody holds the lock now.")
	wantForced(t, d, 1, 1, 0, 0)
}

// wantForced checks the counter of force unlocks.
func wantForced(t *testing.T, d *dashboard.Dashboard, success, conflict, denied, failed int) {
	t.Helper()
	want := fmt.Sprintf(`# HELP mutexdash_force_unlocks_total Requested force unlocks, by result.
# TYPE mutexdash_force_unlocks_total counter
mutexdash_force_unlocks_total{result="conflict"} %d
mutexdash_force_unlocks_total{result="denied"} %d
mutexdash_force_unlocks_total{result="error"} %d
mutexdash_force_unlocks_total{result="success"} %d
`, conflict, denied, failed, success)
	if err := testutil.CollectAndCompare(d, strings.NewReader(want), "mutexdash_force_unlocks_total"); err != nil {
		t.Error(err)
	}
}

func TestForceUnlockDoesNotSendPeopleToWaitForWhatNeverComes(t *testing.T) {
	for name, change := range map[string]func(*scene, *setup.Config){
		"excluded":    func(_ *scene, c *setup.Config) { publishing(func(*staleness.Policy) {}, "billing/*")(c) },
		"alerts only": func(s *scene, _ *setup.Config) { s.unlockers[0].Mode = "alert-only" },
		"no unlocker": func(s *scene, _ *setup.Config) { s.unlockers = nil },
	} {
		t.Run(name, func(t *testing.T) {
			s := busy()
			d, _ := operated(t, s, func(c *setup.Config) { change(s, c) })
			page := words(get(d, unlockLink(s, stuck), "X-Forwarded-User", "chief").Body.String())
			wantWords(t, page, "Better, if you can")
			if strings.Contains(page, "the auto-unlock does the same") {
				t.Errorf("the form promises an auto-unlock: %s", page)
			}
		})
	}
}

func TestForceUnlockIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		who     string
		change  func(*scene, url.Values)
		headers []string
		status  int
		says    string
	}{
		"without a name":         {"", nil, nil, 401, "wants to know who you are"},
		"without the permission": {"viewer", nil, nil, 403, "needs the permission unlock"},
		"to somebody unknown":    {"nobody", nil, nil, 403, "needs the permission view"},
		"from another site":      {"chief", nil, []string{"Sec-Fetch-Site", "cross-site"}, 403, "another site"},
		"from a sandboxed page": {"chief", nil, []string{"Sec-Fetch-Site", "", "Origin", "null"}, 403,
			"another site"},
		"as JSON": {"chief", nil, []string{"Content-Type", "application/json"}, 415,
			"must be application/x-www-form-urlencoded"},
		"as plain text": {"chief", nil, []string{"Content-Type", "text/plain"}, 415, "must be"},
		"when it is large": {"chief",
			func(_ *scene, f url.Values) { f.Set("reason", strings.Repeat("a", 17<<10)) }, nil, 413, "16 KiB"},
		"while etcd is away": {"chief",
			func(s *scene, _ url.Values) { s.fresh.Heard = s.now.Add(-time.Minute) }, nil, 412, "Nothing was done"},
		"before anything was loaded": {"chief", func(s *scene, _ url.Values) { s.fresh.Heard = time.Time{} }, nil, 503,
			"could not be loaded"},
		"for the wrong name": {"chief", func(_ *scene, f url.Values) { f.Set("typed", "billing/invoice-rum") },
			nil, 422, "not the name of this lock"},
		"for a name with a blank": {"chief", func(_ *scene, f url.Values) { f.Set("typed", stuck+" ") }, nil, 422,
			"not the name of this lock"},
		"without a reason": {"chief", func(_ *scene, f url.Values) { f.Set("reason", "  too  few ") }, nil,
			422, "7 characters"},
		"with a novel": {"chief",
			func(_ *scene, f url.Values) { f.Set("reason", strings.Repeat("ü", 501)) }, nil, 422, "501 characters"},
		"with escape sequences": {"chief",
			func(_ *scene, f url.Values) { f.Set("reason", "because \x1b[31m I say so") }, nil, 422, "plain text"},
		"with bytes as a reason": {"chief",
			func(_ *scene, f url.Values) { f.Set("reason", "because \xff\xfe I say so") }, nil, 422, "plain text"},
		"with a ticket like a novel": {"chief",
			func(_ *scene, f url.Values) { f.Set("ticket", strings.Repeat("a", 101)) }, nil, 422, "100 characters"},
		"for a hold that is over": {"chief", func(s *scene, _ url.Values) { delete(s.documents, stuck) }, nil, 409,
			"Nobody holds the lock now"},
		"for a name without its hold": {"chief", func(_ *scene, f url.Values) { f.Del("hold") }, nil, 400,
			"which hold"},
		"for another hold": {"chief", func(_ *scene, f url.Values) { f.Set("token", "7") }, nil, 409,
			"now held by billing on billing-7f9c:17"},
		"while etcd does not answer": {"chief", func(s *scene, _ url.Values) { s.away = errAway }, nil, 503,
			"Nothing was done: timeout"},
	} {
		t.Run(name, func(t *testing.T) {
			s := busy()
			d, done := operated(t, s)
			link := unlockLink(s, stuck)
			form := s.wanted(stuck)
			if c.change != nil {
				c.change(s, form)
			}
			w := post(d, c.who, link, form, c.headers...)
			if w.Code != c.status || len(*done) != 0 {
				t.Errorf("the answer is %d, want %d; done: %v", w.Code, c.status, *done)
			}
			wantWords(t, w.Body.String(), c.says)
			if c.status == 422 {
				for _, value := range []string{"name=\"ticket\" value=\"" + form.Get("ticket"), "Nothing was done."} {
					if !strings.Contains(w.Body.String(), value) {
						t.Errorf("the form does not keep what was typed: %s", value)
					}
				}
			}
			if !strings.Contains(s.log.String(), "refused") && !strings.Contains(s.log.String(),
				`"audit":"force-unlock","result":`) {
				t.Errorf("the log does not show it: %s", &s.log)
			}
			if strings.Contains(s.log.String(), `"result":"success"`) {
				t.Errorf("the log reports a success: %s", &s.log)
			}
		})
	}
}

func TestForceUnlockIsOffUnlessSwitchedOn(t *testing.T) {
	s := busy()
	d := s.dashboard(t, func(c *setup.Config) { c.Access = behindProxy(t) })
	for _, who := range []string{"chief", "viewer", ""} {
		if w := get(d, unlockLink(s, stuck), "X-Forwarded-User", who); who != "" &&
			(w.Code != 403 || !strings.Contains(w.Body.String(), "switched off")) {
			t.Errorf("the page for %q: %d %s", who, w.Code, words(w.Body.String()))
		}
		if w := post(d, who, unlockLink(s, stuck), s.wanted(stuck)); w.Code != 403 || !strings.Contains(w.Body.String(),
			"switched off") {
			t.Errorf("POST for %q: %d", who, w.Code)
		}
		w := send(d, who, "/api/v1/lock/force-unlock", "application/json",
			`{"name":"a","uuid":"b","token":"1","reason":"long enough"}`)
		if w.Code != 403 || !strings.Contains(w.Body.String(), `"code":"read_only"`) {
			t.Errorf("API for %q: %d %s", who, w.Code, w.Body)
		}
	}
	wantWords(t, get(d, "/lock?name="+stuck, "X-Forwarded-User", "chief").Body.String(), "This dashboard is read-only.")
}

func TestForceUnlockTellsWhyThereIsNoLink(t *testing.T) {
	s := busy()
	d, _ := operated(t, s)
	wantWords(t, get(d, "/lock?name="+stuck, "X-Forwarded-User", "viewer").Body.String(),
		"Force unlock needs the permission unlock.")
	s.fresh.Heard = s.now.Add(-time.Minute)
	wantWords(t, get(d, "/lock?name="+stuck, "X-Forwarded-User", "chief").Body.String(),
		"No force unlock now: etcd is away")
	if w := get(d, unlockLink(s, stuck), "X-Forwarded-User", "chief"); w.Code != http.StatusPreconditionFailed {
		t.Errorf("the confirmation page of an old picture is answered with %d", w.Code)
	}
}

func TestForceUnlocksHaveARate(t *testing.T) {
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
		t.Errorf("somebody else is answered with %d", w.Code)
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
	s.fresh.Heard = s.now
	if w := post(d, "chief", unlockLink(s, stuck), s.wanted(stuck)); w.Code != http.StatusSeeOther || len(*done) != 31 {
		t.Errorf("a minute later the answer is %d", w.Code)
	}
}

func TestForceUnlockOfHostileNames(t *testing.T) {
	for _, name := range hostile() {
		s := infested()
		d, done := operated(t, s)
		if len(name) > 4000 {
			continue // no request can carry it
		}
		link := "/unlock?name_b64=" + base64.RawURLEncoding.EncodeToString([]byte(name)) + "&hold=" + uuid(name)
		w := get(d, link, "X-Forwarded-User", "chief")
		if w.Code != 200 {
			t.Errorf("%.40q: %d", name, w.Code)
			continue
		}
		checkHarmless(t, link, w.Body.String())
		typed := shownName(w.Body.String())
		form := s.wanted(name)
		form.Set("typed", typed)
		if w := post(d, "chief", link, form); w.Code != http.StatusSeeOther || len(*done) != 1 ||
			(*done)[0].Lock != name {
			t.Errorf("%.40q, typed as shown (%q): %d %v", name, typed, w.Code, *done)
		}
		if !json.Valid([]byte(lastLine(s.log.String()))) || deceptive(lastLine(s.log.String())) >= 0 {
			t.Errorf("%.40q: the log line is %q", name, lastLine(s.log.String()))
		}
	}
}

// shownName is the name of the lock as the label of the form shows it.
func shownName(page string) string {
	_, rest, _ := strings.Cut(page, `<label for="typed">`)
	_, rest, _ = strings.Cut(rest, "<code>")
	shown, _, _ := strings.Cut(rest, "</code>")
	return unescape(shown)
}

func unescape(s string) string {
	return strings.NewReplacer("&lt;", "<", "&gt;", ">", "&#34;", `"`, "&#39;", "'", "&amp;", "&", "&#43;",
		"+").Replace(s)
}

func lastLine(log string) string {
	lines := strings.Split(strings.TrimSpace(log), "\n")
	return lines[len(lines)-1]
}

func TestForceUnlockByTheAPI(t *testing.T) {
	s := busy()
	d, done := operated(t, s)
	r := s.documents[stuck]
	const path = "/api/v1/lock/force-unlock"
	body := fmt.Sprintf(`{"name":%q,"uuid":%q,"token":"%d","revision":"%d","reason":"the pod is dead, node lost"}`,
		stuck, r.UUID, r.Token, r.Revision)
	for name, c := range map[string]struct {
		who, kind, body string
		status          int
		code            string
	}{
		"without a name":         {"", "application/json", body, 401, "unauthenticated"},
		"without the permission": {"viewer", "application/json", body, 403, "forbidden"},
		"as a form":              {"chief", "application/x-www-form-urlencoded", body, 415, "bad_type"},
		"no JSON":                {"chief", "application/json", "{", 400, "bad_body"},
		"two objects":            {"chief", "application/json", body + body, 400, "bad_body"},
		"an unknown member":      {"chief", "application/json", `{"name":"a","force":true}`, 400, "bad_body"},
		"no token": {"chief", "application/json", `{"name":"a","uuid":"b","reason":"long enough"}`, 400,
			"bad_body"},
		"a token that is a number": {"chief", "application/json", strings.ReplaceAll(body,
			fmt.Sprintf(`"token":"%d"`, r.Token), fmt.Sprintf(`"token":%d`, r.Token)), 400, "bad_body"},
		"a name that is no base64": {"chief", "application/json",
			strings.Replace(body, `{"name":`, `{"name_base64":`, 1), 400, "bad_body"},
		"a short reason": {"chief", "application/json", strings.Replace(body, "the pod is dead, node lost", "x",
			1), 422, "bad_reason"},
		"another hold": {"chief", "application/json", strings.Replace(body, r.UUID, "other", 1), 409,
			"hold_changed"},
	} {
		w := send(d, c.who, path, c.kind, c.body)
		if w.Code != c.status || !strings.Contains(w.Body.String(), `"code":"`+c.code+`"`) ||
			w.Header().Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s: %d %s", name, w.Code, w.Body)
		}
		if c.status == 409 && !strings.Contains(w.Body.String(), `"lock":{"name":"billing/invoice-run"`) {
			t.Errorf("%s: it does not say who holds it: %s", name, w.Body)
		}
	}
	if len(*done) != 0 {
		t.Fatalf("done were %v", *done)
	}
	w := send(d, "chief", path, "application/json; charset=utf-8", body)
	if w.Code != 200 || !strings.Contains(w.Body.String(), `{"result":"unlocked","audit_id":"`+(*done)[0].ID+`"}`) {
		t.Errorf("the answer is %d %s", w.Code, w.Body)
	}
	if w := get(d, path, "X-Forwarded-User", "chief"); w.Code != 405 || w.Header().Get("Allow") != "POST" {
		t.Errorf("GET is answered with %d, allowed is %q", w.Code, w.Header().Get("Allow"))
	}
	if w := ask(d, "PUT", "/unlock", "X-Forwarded-User", "chief"); w.Code != 405 ||
		w.Header().Get("Allow") != "GET, HEAD, POST" {
		t.Errorf("PUT is answered with %d, allowed is %q", w.Code, w.Header().Get("Allow"))
	}
}
