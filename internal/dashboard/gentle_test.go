package dashboard_test

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/clustermutex/unlocker/internal/dashboard/setup"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// gentle switches on what takes nothing away from a holder. What is asked of etcd goes to done.
func gentle(t testing.TB, s *scene, done *[]protocol.Action, fails ...error) func(*setup.Config) {
	do := func(_ protocol.Subject, a protocol.Action) error {
		s.change(func() { *done = append(*done, a) })
		return errors.Join(fails...)
	}
	return func(c *setup.Config) {
		c.Access = behindProxy(t)
		operates(c, do, protocol.ActionAsk, protocol.ActionExtend, protocol.ActionAcknowledge, protocol.ActionWithdraw)
	}
}

// asked is a scene in which the holder of stuck was asked to finish and got more time.
func asked(t testing.TB) *scene {
	s := lived(t)
	s.add(hold{name: stuck, owner: "billing", host: "billing-7f9c", purpose: "nightly invoices", held: 22 * time.Minute,
		alert: -time.Minute, unlock: time.Hour})
	r := s.documents[stuck]
	at := metadata.Time{Time: s.now.Add(-2 * time.Minute)}
	s.put(stuck, append(r.Fields,
		metadata.Field{Name: "asked", Value: protocol.Marshal(metadata.Request{UUID: r.UUID, Token: r.Token + 1,
			By: "ann", Source: "cli", At: at, Reason: "the <deploy> waits"})},
		metadata.Field{Name: "extended", Value: protocol.Marshal(metadata.Extension{UUID: r.UUID, Token: r.Token + 1,
			By: "bob", Source: "basic", At: at, Reason: "the disk is slow", Seconds: 1800})})...)
	return s
}

func (s *scene) form(name, reason, more string) url.Values {
	f := s.wanted(name)
	f.Del("typed")
	f.Set("reason", reason)
	f.Set("more", more)
	return f
}

func actionLink(s *scene, page, name string) string {
	return "/" + page + "?name=" + name + "&hold=" + s.documents[name].UUID
}

func TestAPersonAsksAndGivesTime(t *testing.T) {
	s := busy()
	var done []protocol.Action
	d := s.dashboard(t, gentle(t, s, &done))
	page := get(d, "/lock?name="+stuck, "X-Forwarded-User", "chief").Body.String()
	for what, c := range map[string]struct {
		more, own string
		seconds   int64
		metric    string
	}{
		"ask":    {"", "", 0, "mutexdash_asks_total"},
		"extend": {"own", " 1h30m ", 5400, "mutexdash_extensions_total"},

		"acknowledge": {"30m", "", 1800, "mutexdash_acknowledgements_total"},
	} {
		link := actionLink(s, what, stuck)
		if !strings.Contains(page, `href="`+strings.ReplaceAll(link, "&", "&amp;")+`"`) {
			t.Errorf("the page of the lock does not lead to %s", link)
		}
		w := get(d, link, "X-Forwarded-User", "chief")
		if w.Code != 200 || w.Header().Get("Referrer-Policy") != "same-origin" || len(done) > 0 {
			t.Fatalf("the form of %s: %d %v %s", what, w.Code, w.Header(), &s.log)
		}
		form := s.form(stuck, "the deploy  waits", c.more)
		form.Set("own", c.own)
		w = post(d, "chief", link, form)
		if w.Code != http.StatusSeeOther || w.Header().Get("Location") != strings.Replace(link, what+"?", "lock?", 1) {
			t.Fatalf("%s is answered with %d %v %s", what, w.Code, w.Header(), words(w.Body.String()))
		}
		if len(done) != 1 || string(done[0].Action) != what || done[0].Actor != "chief" ||
			done[0].Seconds != c.seconds ||
			done[0].Reason != "the deploy waits" || done[0].UUID != uuid(stuck) || done[0].Ticket != "OPS-12" {
			t.Errorf("%s did %+v", what, done)
		}
		if got := sample(t, d, c.metric, "success"); got != 1 {
			t.Errorf("%s counts %v", what, got)
		}
		if !strings.Contains(s.log.String(), `"audit":"`+what+`","result":"success"`) {
			t.Errorf("the log does not show it: %s", &s.log)
		}
		done = nil
	}
}

func TestAForceUnlockOffersWhatTakesNothingAway(t *testing.T) {
	s := busy()
	d, _ := operated(t, s, gentle(t, s, new([]protocol.Action)))
	for who, offered := range map[string]bool{"chief": true, "unlocker": false} {
		page := get(d, actionLink(s, "unlock", stuck), "X-Forwarded-User", who).Body.String()
		for _, what := range []string{"ask", "extend"} {
			link := `href="` + strings.ReplaceAll(actionLink(s, what, stuck), "&", "&amp;") + `"`
			if strings.Contains(page, link) != offered {
				t.Errorf("%s is offered to %s: %v, want %v", what, who, !offered, offered)
			}
		}
	}
}

func TestWhileStaleTheCommandDoesWhatTheFormWanted(t *testing.T) {
	const reason = "it's the disk"
	const quoted = `'it'\''s the disk'`
	for name, c := range map[string]struct {
		what  string
		typed url.Values // nil: the form was only opened
		says  string     // between the uuid and the name
	}{
		"force unlock": {"unlock", url.Values{"reason": {reason}}, "--reason " + quoted},
		"ask, opened":  {"ask", nil, "--reason ''"},
		"ask": {"ask", url.Values{"reason": {reason}, "ticket": {"OPS-12"}},
			"--reason " + quoted + " --ticket OPS-12"},
		"ask, with controls": {"ask", url.Values{"reason": {"a \x1b[31m b"}},
			`--reason $'a \x1b[31m b'`},
		"extend, opened": {"extend", nil, "--by 30m --reason ''"},
		"extend": {"extend", url.Values{"reason": {"-x"}, "more": {"own"}, "own": {"1d 2h"}},
			"--by 26h --reason -x"},
		"extend by what nobody can read": {"extend", url.Values{"reason": {"x"}, "more": {"own"}, "own": {"soon"}},
			"--by 30m --reason x"},
		"acknowledge, opened": {"acknowledge", nil, "--for 30m"},
		"acknowledge": {"acknowledge", url.Values{"reason": {reason}, "more": {"own"}, "own": {"90s"}},
			"--for 1m30s --note " + quoted},
		"withdraw": {"acknowledge", url.Values{"withdraw": {"7"}, "more": {"30m"}, "reason": {reason}}, "--withdraw"},
	} {
		t.Run(name, func(t *testing.T) {
			s := busy()
			var done []protocol.Action
			d, _ := operated(t, s, gentle(t, s, &done))
			link := actionLink(s, c.what, stuck)
			form := s.wanted(stuck)
			for _, field := range []string{"reason", "ticket"} {
				form.Del(field)
			}
			maps.Copy(form, c.typed)
			s.fresh.Heard = s.now.Add(-time.Minute)
			w := get(d, link, "X-Forwarded-User", "chief")
			if c.typed != nil {
				w = post(d, "chief", link, form)
			}
			command := map[string]string{"unlock": "force-unlock", "acknowledge": "ack"}[c.what]
			if w.Code != http.StatusPreconditionFailed || len(done) > 0 {
				t.Errorf("it answers %d, and does %v", w.Code, done)
			}
			wantWords(t, w.Body.String(),
				"mutexctl "+cmp.Or(command, c.what)+" --uuid "+uuid(stuck)+" "+c.says+" "+stuck)
		})
	}
}

func TestGentleActionsAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		who, what, reason, more string
		change                  func(*scene, url.Values)
		fails                   error
		status                  int
		says                    string
	}{
		"without a name":   {"", "ask", "please", "", nil, nil, 401, "wants to know who you are"},
		"without ask":      {"unlocker", "ask", "please", "", nil, nil, 403, "needs the permission ask"},
		"without extend":   {"unlocker", "extend", "please", "30m", nil, nil, 403, "needs the permission extend"},
		"without a reason": {"chief", "ask", " ", "", nil, nil, 422, "0 characters"},
		"with a novel":     {"chief", "ask", strings.Repeat("a", 501), "", nil, nil, 422, "501 characters"},
		"without a time":   {"chief", "extend", "slow disk", "own", nil, nil, 422, "How much time is that?"},
		"with a fraction":  {"chief", "extend", "slow disk", "1500ms", nil, nil, 422, "How much time is that?"},
		"with no time":     {"chief", "extend", "slow disk", "-30m", nil, nil, 422, "at least a second"},
		"with too much":    {"chief", "extend", "slow disk", "169h", nil, nil, 422, "at most 7 days"},
		"for another hold": {"chief", "ask", "please", "",
			func(_ *scene, f url.Values) { f.Set("token", "7") }, nil, 409, "now held by billing"},
		"for no hold any more": {"chief", "extend", "please", "30m",
			func(s *scene, _ url.Values) { delete(s.documents, stuck) }, nil, 409, "Nobody holds the lock now"},
		"while etcd is away": {"chief", "ask", "please", "",
			func(s *scene, _ url.Values) { s.fresh.Heard = s.now.Add(-time.Minute) }, nil, 412, "Nothing was done"},
		"without acknowledge": {"unlocker", "acknowledge", "", "30m", nil, nil, 403, "the permission acknowledge"},
		"with a long note": {"chief", "acknowledge", strings.Repeat("a", 501), "1h", nil, nil, 422,
			"The note has 501"},
		"too short": {"chief", "acknowledge", "", "59s", nil, nil, 422, "lasts at least a minute"},
		"too long":  {"chief", "acknowledge", "", "24h1s", nil, nil, 422, "lasts at most 24 hours"},
		"when another hold began": {"chief", "acknowledge", "", "30m",
			func(_ *scene, f url.Values) { f.Set("token", "7") }, nil, 409, "now held by billing"},
		"when it was extended": {"chief", "extend", "please", "30m",
			nil, metadata.ErrChanged, 409, "the lock was extended just now"},
		"when nobody knows": {"chief", "extend", "please", "30m", nil, protocol.ErrUnknown, 504, "Outcome unknown"},
		"when etcd refuses": {"chief", "ask", "please", "",
			nil, errors.New("out of space"), 503, "Nothing was done: out of space"},
		"when it makes no sense": {"chief", "extend", "please", "30m", nil,
			&protocol.RefusedError{Why: "the record is odd"}, 409, "Nothing was done: the record is odd."},
	} {
		t.Run(name, func(t *testing.T) {
			s := busy()
			var done []protocol.Action
			var fails []error
			if c.fails != nil {
				fails = append(fails, c.fails)
			}
			d := s.dashboard(t, gentle(t, s, &done, fails...))
			link := actionLink(s, c.what, stuck)
			form := s.form(stuck, c.reason, c.more)
			if c.change != nil {
				c.change(s, form)
			}
			w := post(d, c.who, link, form)
			if w.Code != c.status || c.fails == nil && len(done) > 0 {
				t.Errorf("the answer is %d, want %d; done: %v", w.Code, c.status, done)
			}
			wantWords(t, w.Body.String(), c.says)
			answered := w.Body.String()
			if c.status == 422 && (c.more != "" && c.more != "own" &&
				!strings.Contains(answered, `value="`+c.more+`"`) ||
				!strings.Contains(w.Body.String(), `name="ticket" value="OPS-12"`)) {
				t.Errorf("the form does not keep what was typed: %s", w.Body)
			}
		})
	}
}

func TestGentleActionsAreOffUnlessSwitchedOn(t *testing.T) {
	s := busy()
	d, _ := operated(t, s)
	for _, what := range []string{"ask", "extend", "acknowledge"} {
		w := post(d, "chief", actionLink(s, what, stuck), s.form(stuck, "please", "30m"))
		if w.Code != 403 || !strings.Contains(w.Body.String(), "switched off") {
			t.Errorf("%s: %d", what, w.Code)
		}
		if w := post(d, "chief", actionLink(s, what, stuck), s.form(stuck, "please", "30m"), "Sec-Fetch-Site",
			"cross-site"); w.Code != 403 {
			t.Errorf("%s from another site: %d", what, w.Code)
		}
	}
	if page := get(d, "/lock?name="+stuck, "X-Forwarded-User", "chief").Body.String(); strings.Contains(page,
		"Give more time") {
		t.Error("the page of the lock leads to what is switched off")
	} else if strings.Contains(page, "Acknowledge") {
		t.Error("the page of the lock leads to an acknowledgement, which is switched off")
	}
}

func TestGentleActionsByTheAPI(t *testing.T) {
	s := busy()
	var done []protocol.Action
	d := s.dashboard(t, gentle(t, s, &done))
	r := s.documents[stuck]
	body := func(more string) string {
		return fmt.Sprintf(`{"name":%q,"uuid":%q,"token":"%d","reason":"please"%s}`, stuck, r.UUID, r.Token, more)
	}
	for name, c := range map[string]struct {
		what, more string
		status     int
		says       string
	}{
		"ask":                 {"ask", "", 200, `"result":"asked"`},
		"extend":              {"extend", `,"seconds":1800`, 200, `"result":"extended"`},
		"extend without time": {"extend", "", 422, `"code":"bad_seconds"`},
		"extend for ages":     {"extend", `,"seconds":18446744075509`, 422, `"code":"bad_seconds"`},
		"ask with a note":     {"ask", `,"note":"please"`, 400, "has note instead of reason"},
		"acknowledge":         {"acknowledge", `,"seconds":1800,"note":"the disk"`, 200, `"result":"acknowledged"`},
		"acknowledge briefly": {"acknowledge", `,"seconds":59`, 422, `"code":"bad_seconds"`},
		"withdraw nothing":    {"acknowledge", `,"withdraw":true`, 409, "nobody has acknowledged it"},
	} {
		done = nil
		w := send(d, "chief", "/api/v1/lock/"+c.what, "application/json", body(c.more))
		if w.Code != c.status || !strings.Contains(w.Body.String(), c.says) || (len(done) == 1) != (c.status == 200) {
			t.Errorf("%s: %d %s, did %v", name, w.Code, w.Body, done)
		}
	}
}

func TestWhatWasDoneToAHoldIsShown(t *testing.T) {
	s := asked(t)
	d := s.dashboard(t)
	wantWords(t, ok(t, d, "/lock?name="+stuck), `asked by ann 2m ago: "the <deploy> waits"; no answer yet`,
		`bob gave 30m more 2m ago: "the disk is slow"`)
	if page := ok(t, d, "/api/v1/lock?name="+stuck); !strings.Contains(page, `"asked":{"by":"ann","source":"cli"`) ||
		!strings.Contains(page, `"answered":false`) || !strings.Contains(page, `"seconds":1800`) {
		t.Errorf("the API says %s", page)
	}
}

func TestAHoldThatEndsOnRequestIsYielded(t *testing.T) {
	s := asked(t)
	d := s.dashboard(t)
	record := s.documents[stuck].Record
	delete(s.documents, stuck)
	d.Ended(&record, nil)
	wantWords(t, ok(t, d, "/history?q=ended:yielded"), "yielded", "asked by ann: the <deploy> waits")
}

func TestGentleActionsHaveCountersFromTheBeginning(t *testing.T) {
	d := busy().dashboard(t)
	if n := testutil.CollectAndCount(d, "mutexdash_asks_total", "mutexdash_extensions_total",
		"mutexdash_acknowledgements_total"); n != 12 {
		t.Errorf("%d series", n)
	}
}
