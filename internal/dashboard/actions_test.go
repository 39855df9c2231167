package dashboard_test

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/dashboard"
	"github.com/clustermutex/unlocker/internal/dashboard/app"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// verb is an action of operators.
type verb struct {
	page    string        // its form
	action  protocol.Verb // as the audit trail and the API call it
	command string        // as mutexctl calls it
	counter string
	need    string // permission
	lock    string
	form    url.Values // what its form sends
}

const free = "billing/free" // which nobody holds, and which has a lock delay

// verbs are all actions, with valid forms.
func verbs(s *scene) []verb {
	return []verb{
		{"unlock", protocol.VerbForceUnlock, "force-unlock", "force_unlocks", "unlock", stuck, s.wanted(stuck)},
		{"ask", protocol.VerbAsk, "ask", "asks", "ask", stuck, s.form(stuck, "the disk is slow", "")},
		{"extend", protocol.VerbExtend, "extend", "extensions", "extend", stuck,
			s.form(stuck, "the disk is slow", "1h")},
		{"acknowledge", protocol.VerbAcknowledge, "ack", "acknowledgements", "acknowledge", stuck,
			s.form(stuck, "the disk is slow", "30m")},
		{"end-delay", protocol.VerbEndDelay, "end-delay", "delay_ends", "unlock", free, endForm(free)},
	}
}

func (v verb) link() string { return "/" + v.page + "?name=" + v.lock + "&hold=" + v.form.Get("hold") }

func (v verb) count(t *testing.T, d *dashboard.Dashboard, result string) float64 {
	return sample(t, d, "mutexdash_"+v.counter+"_total", result)
}

// operators returns a dashboard with all actions enabled. Requests to etcd go to done and return err.
func operators(t testing.TB, s *scene, done *[]protocol.Action, err *error) *dashboard.Dashboard {
	do := func(on protocol.ActionTarget, a protocol.Action) error {
		if d := on.Delay; a.Verb == protocol.VerbEndDelay && (d.Name != free || d.Revision != 99) {
			t.Errorf("the delay to end is %+v", d)
		}
		s.change(func() { *done = append(*done, a) })
		return *err
	}
	return s.dashboard(t, delayed(s, free), func(c *app.Config) {
		c.Access = behindProxy(t)
		operates(c, do, protocol.VerbForceUnlock, protocol.VerbAsk, protocol.VerbExtend,
			protocol.VerbAcknowledge, protocol.VerbWithdraw, protocol.VerbEndDelay)
	})
}

func TestActionsAskForConfirmation(t *testing.T) {
	s := busy()
	var done []protocol.Action
	d := operators(t, s, &done, new(error))
	for _, v := range verbs(s) {
		page := get(d, "/lock?name="+v.lock, "X-Forwarded-User", "chief").Body.String()
		if !slices.Contains(attributes(page, "href"), v.link()) {
			t.Errorf("the page of the lock does not lead to %s", v.link())
		}
		for _, who := range []string{"viewer", "catalog-only"} {
			page = get(d, "/lock?name="+v.lock, "X-Forwarded-User", who).Body.String()
			if slices.Contains(attributes(page, "href"), v.link()) {
				t.Errorf("the lock page links %s to %s", who, v.link())
			}
			if who == "viewer" && v.page == "unlock" {
				wantWords(t, page, "Force unlock needs the permission unlock.")
			}
			if v.page == "end-delay" {
				wantWords(t, page,
					"(mutexctl force-unlock --end-delay billing/free --uuid "+delayedHold+
						" --reason 'REASON' ends it).")
			}
		}
		w := get(d, v.link(), "X-Forwarded-User", "chief")
		if w.Code != 200 || w.Header().Get("Referrer-Policy") != "same-origin" ||
			w.Header().Get("X-Frame-Options") != "DENY" || len(done) > 0 {
			t.Fatalf("the form of %s: %d %v, did %v", v.page, w.Code, w.Header(), done)
		}
		if from := attributes(w.Body.String(), "data-from"); v.page == "end-delay" && len(from) > 0 {
			t.Errorf("the head of the form of a lock delay is replaced by that of %v", from)
		}
		w = post(d, "chief", v.link(), v.form)
		then := "/lock?name=" + v.lock + "&hold=" + v.form.Get("hold")
		if v.page == "end-delay" {
			then = "/lock?name=" + v.lock
		}
		if w.Code != http.StatusSeeOther || w.Header().Get("Location") != then || len(done) != 1 {
			t.Fatalf("%s is answered with %d %v, did %v", v.page, w.Code, w.Header(), done)
		}
		a := done[0]
		if a.Verb != v.action || a.Actor != "chief" || a.Lock != v.lock || a.UUID != v.form.Get("hold") ||
			fmt.Sprint(a.Token) != v.form.Get("token") || fmt.Sprint(a.Revision) != v.form.Get("revision") ||
			a.Reason != strings.Join(strings.Fields(v.form.Get("reason")), " ") || a.Ticket != "OPS-12" ||
			a.Seconds != map[string]int64{"extend": 3600, "acknowledge": 1800}[v.page] {
			t.Errorf("%s did %+v", v.page, a)
		}
		if n := v.count(t, d, "success"); n != 1 {
			t.Errorf("%s counts %v", v.page, n)
		}
		if !strings.Contains(s.log.String(), `"audit":"`+string(v.action)+`","result":"success"`) {
			t.Errorf("the log does not show %s: %s", v.page, &s.log)
		}
		done = nil
	}
}

// refusal is a form that must be refused.
type refusal struct {
	name    string
	verbs   string // to which it happens; empty: to all
	who     string // "-": nobody; empty: somebody who may
	set     string // a field of the form, and its value
	change  func(*scene, url.Values)
	headers []string
	fails   error // what etcd says
	status  int
	says    string
	result  string // by which it is counted; empty: denied
}

func refusals() []refusal {
	const large = 65 << 10
	lost := func(s *scene, _ url.Values) { delete(s.documents, stuck) }
	stale := func(s *scene, _ url.Values) { s.fresh.HeardAt = s.now.Add(-time.Minute) }
	never := func(s *scene, _ url.Values) { s.fresh.HeardAt = time.Time{} }
	silent := func(s *scene, _ url.Values) { s.away = errAway }
	short := func(_ *scene, f url.Values) { f.Set("reason", "  too  few ") }
	dead := func(s *scene, _ url.Values) {
		s.state(stuck, time.Minute)
		s.tick(2 * time.Second) // to the next picture
	}
	const ofHolds, marks = "unlock ask extend acknowledge", "ask extend acknowledge"
	return []refusal{
		{name: "without a name", who: "-", status: 401, says: "needs to know who you are"},
		{name: "without the permission", who: "viewer", status: 403, says: "needs the permission NEED"},
		{name: "with that for others", verbs: "ask extend acknowledge", who: "unlocker", status: 403,
			says: "needs the permission NEED"},
		{name: "of somebody unknown", who: "nobody", status: 403, says: "needs the permission view"},
		{name: "for another owner", verbs: "unlock end-delay", who: "catalog-only", status: 403,
			says: "for other owners' locks"},
		{name: "from another site", headers: []string{"Sec-Fetch-Site", "cross-site"}, status: 403,
			says: "another site"},
		{name: "from a sandboxed page", headers: []string{"Sec-Fetch-Site", "", "Origin", "null"}, status: 403,
			says: "another site"},
		{name: "as JSON", headers: []string{"Content-Type", "application/json"}, status: 415,
			says: "must be application/x-www-form-urlencoded"},
		{name: "that is large", set: "reason=" + strings.Repeat("a", large), status: 413, says: "64 KiB"},
		{name: "while etcd is away", change: stale, status: 412, says: "Nothing was done."},
		{name: "before anything was loaded", change: never, status: 503, says: "could not be loaded"},
		{name: "without its hold", set: "hold=", status: 400, says: "which hold"},
		{name: "with escape sequences", set: "reason=because \x1b[31m I say so", status: 422, says: "plain text"},
		{name: "with bytes", set: "reason=because \xff\xfe I say so", status: 422, says: "plain text"},
		{name: "with an odd ticket", set: "ticket=OPS\x1b12", status: 422, says: "The ticket must be plain"},
		{name: "with a long ticket", set: "ticket=" + strings.Repeat("a", 101), status: 422, says: "100 characters"},
		{name: "with a novel", set: "reason=" + strings.Repeat("ü", 501), status: 422, says: "has 501 characters"},
		{name: "without a reason", verbs: "ask extend", set: "reason= ", status: 422, says: "0 characters"},
		{name: "with few words", verbs: "unlock end-delay", change: short, status: 422, says: "7 characters"},
		{name: "for the wrong name", verbs: "unlock end-delay", set: "typed=billing/invoice-rum", status: 422,
			says: "not the name of this lock"},
		{name: "for a name with a blank", verbs: "unlock", set: "typed=" + stuck + " ", status: 422,
			says: "not the name of this lock"},
		{name: "without a time", verbs: "extend acknowledge", set: "more=own", status: 422,
			says: "How much time is that?"},
		{name: "with a fraction", verbs: "extend", set: "more=1500ms", status: 422, says: "How much time is that?"},
		{name: "with no time", verbs: "extend", set: "more=0s", status: 422, says: "at least a second"},
		{name: "with too much", verbs: "extend", set: "more=169h", status: 422, says: "at most 7 days"},
		{name: "too short", verbs: "acknowledge", set: "more=59s", status: 422, says: "lasts at least a minute"},
		{name: "too long", verbs: "acknowledge", set: "more=24h1s", status: 422, says: "lasts at most 24 hours"},
		{name: "for another hold", verbs: ofHolds, set: "token=7", status: 409,
			says: "now held by billing on billing-7f9c:17", result: "conflict"},
		{name: "for no hold any more", verbs: ofHolds, change: lost, status: 409, says: "Nobody holds the lock now",
			result: "conflict"},
		{name: "of another delay", verbs: "end-delay", set: "revision=98", status: 409,
			says: "There is now a lock delay", result: "conflict"},
		{name: "that is over", verbs: "end-delay", fails: metadata.ErrChanged, status: 409,
			says: "that you saw has ended.", result: "conflict"},
		{name: "when it was extended", verbs: "extend", fails: metadata.ErrChanged, status: 409,
			says: "the lock has just been extended", result: "conflict"},
		{name: "that etcd did not take", verbs: "unlock ask", fails: metadata.ErrChanged, status: 409,
			says: "Nothing was done: the hold that you saw has ended or changed.", result: "conflict"},
		{name: "that makes no sense", verbs: marks, fails: &protocol.RefusedError{Reason: "the record is odd"},
			status: 409, says: "Nothing was done: the record is odd."},
		{name: "while etcd is silent", verbs: ofHolds, change: silent, status: 503, says: "Nothing was done: timeout",
			result: "error"},
		{name: "that etcd refuses", fails: errors.New("out of space"), status: 503,
			says: "Nothing was done: out of space", result: "error"},
		{name: "of which nobody knows", fails: metadata.ErrOutcomeUnknown, status: 504, says: "Outcome unknown",
			result: "error"},
		// the last one: the dead do not come back
		{name: "of a dead holder", verbs: "extend", change: dead, status: 409, says: "the holder has ended"},
	}
}

func TestActionsAreRefused(t *testing.T) {
	for _, v := range verbs(busy()) {
		s := busy()
		var done []protocol.Action
		var fails error
		d := operators(t, s, &done, &fails)
		document := s.documents[stuck]
		for _, r := range refusals() {
			if r.verbs != "" && !slices.Contains(strings.Fields(r.verbs), v.page) {
				continue
			}
			t.Run(v.page+" "+r.name, func(t *testing.T) {
				s.documents[stuck] = document
				s.fresh.HeardAt = s.now
				s.away = nil
				s.log.Reset()
				done = nil
				fails = r.fails
				form := maps.Clone(v.form)
				if key, value, ok := strings.Cut(r.set, "="); ok {
					form.Set(key, value)
				}
				if r.change != nil {
					r.change(s, form)
				}
				result := cmp.Or(r.result, "denied")
				before := v.count(t, d, result)
				// each permitted user has a separate quota
				w := post(d, strings.TrimPrefix(cmp.Or(r.who, r.name), "-"), v.link(), form, append(r.headers,
					"X-Forwarded-Groups", map[bool]string{true: "chiefs"}[r.who == ""])...)
				if w.Code != r.status || r.fails == nil && len(done) > 0 ||
					w.Code == http.StatusPreconditionFailed && w.Header().Get("Refresh") != "" {
					t.Errorf("the answer is %d %v, want %d; done: %v", w.Code, w.Header(), r.status, done)
				}
				wantWords(t, w.Body.String(), strings.Replace(r.says, "NEED", v.need, 1))
				if n := v.count(t, d, result) - before; n != 1 {
					t.Errorf("%s counts %v", result, n)
				}
				audited := fmt.Sprintf(`"audit":%q,"result":%q`, v.action, result)
				if log := s.log.String(); !strings.Contains(log, audited) &&
					!strings.Contains(log, "another site was refused") {
					t.Errorf("the log does not show it: %s", log)
				}
				checkKept(t, r.status, w.Body.String(), form)
			})
		}
	}
}

// checkKept checks that the text typed into a refused form is still in the form, or next to it.
func checkKept(t *testing.T, status int, page string, form url.Values) {
	t.Helper()
	switch status {
	case 422:
		if form.Get("ticket") == "OPS-12" && !strings.Contains(page, `name="ticket" value="OPS-12"`) ||
			!strings.Contains(page, `aria-invalid="true"`) {
			t.Errorf("the form does not keep what was typed, or does not show the mistake: %s", page)
		}
	case 409, 412, 503, 504:
		wantWords(t, page, "You wrote: "+strings.Join(strings.Fields(form.Get("reason")), " ")+" OPS-12")
	}
}

func TestActionsAreOffByDefault(t *testing.T) {
	s := busy()
	d := s.dashboard(t, delayed(s, free), func(c *app.Config) { c.Access = behindProxy(t) })
	for _, v := range verbs(s) {
		for _, who := range []string{"chief", "viewer", ""} {
			if w := get(d, v.link(), "X-Forwarded-User", who); who != "" && (w.Code != 403 ||
				!strings.Contains(w.Body.String(), "switched off")) {
				t.Errorf("the form of %s for %q: %d", v.page, who, w.Code)
			}
			if w := post(d, who, v.link(), v.form); w.Code != 403 ||
				!strings.Contains(w.Body.String(), "switched off") {
				t.Errorf("%s by %q: %d", v.page, who, w.Code)
			}
			w := send(d, who, "/api/v1/lock/"+string(v.action), "application/json", `{"name":"a"}`)
			if w.Code != 403 || !strings.Contains(w.Body.String(), `"code":"read_only"`) {
				t.Errorf("the API of %s for %q: %d %s", v.page, who, w.Code, w.Body)
			}
		}
		page := get(d, "/lock?name="+v.lock, "X-Forwarded-User", "chief").Body.String()
		if slices.Contains(attributes(page, "href"), v.link()) {
			t.Errorf("a page leads to %s, which is switched off", v.page)
		}
	}
	wantWords(t, get(d, "/lock?name="+stuck, "X-Forwarded-User", "chief").Body.String(),
		"mutexctl force-unlock "+stuck+" --uuid "+uuid(stuck)+" --reason 'REASON'")
}

func TestActionsThroughTheAPI(t *testing.T) {
	s := busy()
	var done []protocol.Action
	d := operators(t, s, &done, new(error))
	const unlock, ack = protocol.VerbForceUnlock, protocol.VerbAcknowledge
	const end, extend = protocol.VerbEndDelay, protocol.VerbExtend
	for name, c := range map[string]struct {
		action          protocol.Verb
		who, drop, more string // members that are left out of a body in order, and more or other ones
		status          int
		says            string
	}{
		"without a name":           {unlock, "", "", "", 401, `"code":"unauthenticated"`},
		"without the permission":   {unlock, "viewer", "", "", 403, `"code":"forbidden"`},
		"no JSON":                  {unlock, "chief", "", `,`, 400, `"code":"bad_body"`},
		"two objects":              {unlock, "chief", "", `}{"name":"a"`, 400, `"code":"bad_body"`},
		"an unknown member":        {unlock, "chief", "", `,"force":true`, 400, `"code":"bad_body"`},
		"no token":                 {unlock, "chief", "token", "", 400, `"code":"bad_body"`},
		"a token that is a number": {unlock, "chief", "token", `,"token":7`, 400, `"code":"bad_body"`},
		"a name that is no base64": {unlock, "chief", "name", `,"name_base64":"?"`, 400, `"code":"bad_body"`},
		"a short reason":           {unlock, "chief", "reason", `,"reason":"x"`, 422, `"code":"bad_reason"`},
		"another hold":             {unlock, "chief", "uuid", `,"uuid":"other"`, 409, `"lock":{"name":"` + stuck},
		"unlocked":                 {unlock, "chief", "", "", 200, `{"result":"unlocked","audit_id":"ID"}`},
		"asked":                    {"ask", "chief", "", "", 200, `"result":"asked"`},
		"asked with a note":        {"ask", "chief", "", `,"note":"please"`, 400, "has note instead of reason"},
		"extended":                 {extend, "chief", "", `,"seconds":1800`, 200, `"result":"extended"`},
		"extended without time":    {extend, "chief", "", "", 422, `"code":"bad_seconds"`},
		"extended for ages":        {extend, "chief", "", `,"seconds":18446744075509`, 422, `"code":"bad_seconds"`},
		"acknowledged": {ack, "chief", "reason", `,"seconds":1800,"note":"the disk"`, 200,
			`"result":"acknowledged"`},
		"acknowledged briefly": {ack, "chief", "", `,"seconds":59`, 422, `"code":"bad_seconds"`},
		"nothing withdrawn":    {ack, "chief", "", `,"withdraw":true`, 409, "nobody has acknowledged it"},
		"ended":                {end, "chief", "", `,"revision":"99"`, 200, `"result":"ended"`},
		"ended blindly":        {end, "chief", "", "", 400, "the revision of the lock delay"},
		"of another delay":     {end, "chief", "", `,"revision":"98"`, 409, `"code":"delay_over"`},
		"of another token":     {end, "chief", "token", `,"token":"8","revision":"99"`, 409, `"code":"delay_over"`},
		"ended for no reason":  {end, "chief", "reason", `,"revision":"99"`, 422, `"code":"bad_reason"`},
	} {
		body := bodyOf(s, c.action, c.drop) + c.more + "}"
		done = nil
		s.tick(10 * time.Second) // each person has ten tries a minute
		w := send(d, c.who, "/api/v1/lock/"+string(c.action), "application/json; charset=utf-8", body)
		if len(done) > 0 {
			c.says = strings.Replace(c.says, "ID", done[0].ID, 1)
		}
		if w.Code != c.status || !strings.Contains(w.Body.String(), c.says) || (len(done) == 1) != (c.status == 200) ||
			c.status != 200 && w.Header().Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s: %d %s, did %v", name, w.Code, w.Body, done)
		}
	}
	const path = "/api/v1/lock/force-unlock"
	if w := send(d, "chief", path, "application/x-www-form-urlencoded", "a=b"); w.Code != 415 {
		t.Errorf("a form is answered with %d", w.Code)
	}
	if w := get(d, path, "X-Forwarded-User", "chief"); w.Code != 405 || w.Header().Get("Allow") != "POST" {
		t.Errorf("GET is answered with %d, allowed is %q", w.Code, w.Header().Get("Allow"))
	}
	if w := ask(d, "PUT", "/unlock", "X-Forwarded-User", "chief"); w.Code != 405 ||
		w.Header().Get("Allow") != "GET, HEAD, POST" {
		t.Errorf("PUT is answered with %d, allowed is %q", w.Code, w.Header().Get("Allow"))
	}
}

// bodyOf returns a program's request body for an action, without one member.
func bodyOf(s *scene, action protocol.Verb, without string) string {
	name, id := stuck, s.documents[stuck].UUID
	token := s.documents[stuck].Token
	if action == protocol.VerbEndDelay {
		name = free
		id = delayedHold
		token = 7
	}
	var members []string
	for _, m := range [][2]string{{"name", name}, {"uuid", id}, {"token", fmt.Sprint(token)},
		{"reason", "the pod is dead, node lost"}} {
		if m[0] != without {
			members = append(members, fmt.Sprintf("%q:%q", m[0], m[1]))
		}
	}
	return "{" + strings.Join(members, ",")
}
