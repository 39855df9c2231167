package dashboard_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/dashboard/setup"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

// delayed gives the dashboard one lock delay: of the lock of this name.
func delayed(s *scene, name string) func(*setup.Config) {
	return func(c *setup.Config) {
		of(c).delays = func(lock string) []metadata.Delay {
			if lock != name {
				return nil
			}
			return []metadata.Delay{{Lock: name, UUID: delayedHold, Token: 7,
				Owner: "billing", Hostname: "<b>host-3", Ended: metadata.EndedForced, By: "ann",
				At: metadata.Time{Time: s.now.Add(-4 * time.Second)}, Seconds: 30, Leased: true, Revision: 99}}
		}
	}
}

func TestALockInItsDelaySaysWhoWasBeforeAndUntilWhen(t *testing.T) {
	s := busy()
	want := "There is a lock delay of 30s after the hold of billing on <b>host-3, force-unlocked by ann 4s ago, " +
		"with 0:26 left (mutexctl end-delay --uuid " + delayedHold + " --reason '' "
	page := get(s.dashboard(t, delayed(s, "billing/free")), "/lock?name=billing/free")
	if page.Code != 200 || strings.Contains(page.Body.String(), "<b>host-3") {
		t.Errorf("status %d: %s", page.Code, page.Body)
	}
	wantWords(t, page.Body.String(), "Nobody holds this lock, and nobody waits for it. "+want+"billing/free ends it).")
	held := ok(t, s.dashboard(t, delayed(s, stuck)), "/lock?name="+stuck) // a share of it, or a client that ignored it
	wantWords(t, held, want+stuck+" ends it).")
	api := ok(t, s.dashboard(t, delayed(s, stuck)), "/api/v1/lock?name="+stuck)
	for _, member := range []string{`"delays":[{"name":"` + stuck + `"`, `"how":"force-unlocked"`, `"revision":"99"`,
		`"until_in_seconds":26`} {
		if !strings.Contains(api, member) {
			t.Errorf("the API does not say %s: %s", member, api)
		}
	}
	if other := ok(t, s.dashboard(t), "/api/v1/lock?name="+stuck); strings.Contains(other, "delays") {
		t.Errorf("a lock without a delay: %s", other)
	}
}

// delayedHold is the hold of which [delayed] tells.
const delayedHold = "6f1f6f5e-5d1c-4e52-9d2e-0a9a3f1c7b11"

// ends lets operators end the delay of the lock of this name. What is asked of etcd goes to done.
func ends(t testing.TB, s *scene, name string, done *[]protocol.Action, fails ...error) func(*setup.Config) {
	return func(c *setup.Config) {
		delayed(s, name)(c)
		c.Access = behindProxy(t)
		c.Access.Permissions = parsed(t, strings.Replace(roles, "users:\n",
			"users:\n  catalog-only: [view, 'unlock owner:catalog']\n", 1))
		operates(c, func(on protocol.Subject, a protocol.Action) error {
			if d := on.Delay; d.Lock != name || d.Revision != 99 {
				t.Errorf("the delay to end is %+v", d)
			}
			s.change(func() { *done = append(*done, a) })
			return errors.Join(fails...)
		}, protocol.ActionEndDelay)
	}
}

func endForm(name string) url.Values {
	return url.Values{"hold": {delayedHold}, "token": {"7"}, "revision": {"99"}, "typed": {name},
		"reason": {"node-3 is  switched off"}, "ticket": {"OPS-12"}}
}

func endLink(name string) string { return "/end-delay?name=" + name + "&hold=" + delayedHold }

func TestAPersonEndsALockDelay(t *testing.T) {
	s := busy()
	s.wait("billing/free", "catalog", time.Minute)
	var done []protocol.Action
	d := s.dashboard(t, ends(t, s, "billing/free", &done))
	link := endLink("billing/free")
	page := get(d, "/lock?name=billing/free", "X-Forwarded-User", "chief").Body.String()
	if !strings.Contains(page, `href="`+strings.ReplaceAll(link, "&", "&amp;")+`"`) {
		t.Fatalf("the page of the lock does not lead to %s", link)
	}
	w := get(d, link, "X-Forwarded-User", "chief")
	wantWords(t, w.Body.String(), "End the lock delay of billing/free", "with 0:26 left.",
		"The next waiter gets the lock at once: catalog on catalog-0:1, waiting for 1m",
		"<b>host-3 may still be at work", "(token 7)", "the delay ends by itself in 0:26")
	if h := w.Header(); w.Code != 200 || h.Get("Referrer-Policy") != "same-origin" ||
		h.Get("X-Frame-Options") != "DENY" || len(done) > 0 {
		t.Fatalf("the form: %d %v %v", w.Code, w.Header(), done)
	}
	w = post(d, "chief", link, endForm("billing/free"))
	if w.Code != http.StatusSeeOther || w.Header().Get("Location") != "/lock?name=billing/free" {
		t.Fatalf("the answer is %d %v %s", w.Code, w.Header(), words(w.Body.String()))
	}
	if len(done) != 1 || done[0].Action != protocol.ActionEndDelay || done[0].Actor != "chief" || done[0].Token != 7 ||
		done[0].Reason != "node-3 is switched off" || done[0].UUID != delayedHold || done[0].Ticket != "OPS-12" ||
		done[0].Lock != "billing/free" || done[0].Revision != 99 || !strings.HasPrefix(done[0].Holder, "a lock delay") {
		t.Errorf("it did %+v", done)
	}
	if got := sample(t, d, "mutexdash_delay_ends_total", "success"); got != 1 {
		t.Errorf("it counts %v", got)
	}
	if !strings.Contains(s.log.String(), `"audit":"end-delay","result":"success"`) {
		t.Errorf("the log does not show it: %s", &s.log)
	}
}

func TestTheEndOfALockDelayIsRefused(t *testing.T) {
	set := func(key, value string) func(*scene, url.Values) {
		return func(_ *scene, f url.Values) { f.Set(key, value) }
	}
	away := func(s *scene, _ url.Values) { s.fresh.Heard = s.now.Add(-time.Minute) }
	for name, c := range map[string]struct {
		who    string
		change func(*scene, url.Values)
		fails  error
		status int
		says   string
		result string
	}{
		"without a name":    {"", nil, nil, 401, "wants to know who you are", "denied"},
		"without unlock":    {"viewer", nil, nil, 403, "needs the permission unlock", "denied"},
		"for another owner": {"catalog-only", nil, nil, 403, "for locks of other owners", "denied"},
		"without a reason":  {"chief", set("reason", "off"), nil, 422, "3 characters", "denied"},
		"with another name": {"chief", set("typed", "billing"), nil, 422, "not the name", "denied"},
		"of another delay":  {"chief", set("revision", "98"), nil, 409, "There is now a lock delay", "conflict"},
		"that is over":      {"chief", nil, metadata.ErrChanged, 409, "that you saw is over.", "conflict"},
		"when nobody knows": {"chief", nil, protocol.ErrUnknown, 504, "Outcome unknown", "error"},
		"when etcd refuses": {"chief", nil, errors.New("no leader"), 503, "Nothing was done: no leader", "error"},
		"while etcd is away": {"chief", away, nil, 412,
			"mutexctl end-delay --uuid " + delayedHold +
				" --reason 'node-3 is switched off' --ticket OPS-12 billing/free",
			"denied"},
	} {
		t.Run(name, func(t *testing.T) {
			s := busy()
			var done []protocol.Action
			var fails []error
			if c.fails != nil {
				fails = append(fails, c.fails)
			}
			d := s.dashboard(t, ends(t, s, "billing/free", &done, fails...))
			form := endForm("billing/free")
			if c.change != nil {
				c.change(s, form)
			}
			w := post(d, c.who, endLink("billing/free"), form)
			if w.Code != c.status || c.fails == nil && len(done) > 0 {
				t.Errorf("the answer is %d, want %d; done: %v", w.Code, c.status, done)
			}
			wantWords(t, w.Body.String(), c.says)
			if got := sample(t, d, "mutexdash_delay_ends_total", c.result); got != 1 {
				t.Errorf("%s counts %v", c.result, got)
			}
			if c.status == 422 && !strings.Contains(w.Body.String(), `name="ticket" value="OPS-12"`) {
				t.Errorf("the form does not keep what was typed: %s", w.Body)
			}
		})
	}
}

func TestOnlyThoseWhoMayAreLedToTheEndOfALockDelay(t *testing.T) {
	s := busy()
	var done []protocol.Action
	d := s.dashboard(t, ends(t, s, "billing/free", &done))
	page := "/lock?name=billing/free"
	for _, who := range []string{"viewer", "catalog-only"} {
		body := get(d, page, "X-Forwarded-User", who).Body.String()
		if strings.Contains(body, "/end-delay?") {
			t.Errorf("%s is led to the form", who)
		}
		wantWords(t, body, "(mutexctl end-delay --uuid "+delayedHold+" --reason '' billing/free ends it).")
	}
	s.fresh.Heard = s.now.Add(-time.Minute)
	if strings.Contains(get(d, page, "X-Forwarded-User", "chief").Body.String(), "/end-delay?") {
		t.Error("a stale page leads to the form")
	}
	off := s.dashboard(t, delayed(s, "billing/free"), func(c *setup.Config) { c.Access = behindProxy(t) })
	if w := post(off, "chief", endLink("billing/free"), endForm("billing/free")); w.Code != 403 ||
		!strings.Contains(w.Body.String(), "switched off") {
		t.Errorf("where it is off: %d", w.Code)
	}
}

func TestEndsOfLockDelaysHaveABudgetOfTheirOwn(t *testing.T) {
	s := busy()
	var done []protocol.Action
	d := s.dashboard(t, ends(t, s, "billing/free", &done))
	for range 10 {
		if w := post(d, "chief", endLink("billing/free"), endForm("billing/free")); w.Code != http.StatusSeeOther {
			t.Fatal(w.Code)
		}
	}
	w := post(d, "chief", endLink("billing/free"), endForm("billing/free"))
	if w.Code != http.StatusTooManyRequests || len(done) != 10 {
		t.Errorf("the eleventh in a minute: %d, did %d", w.Code, len(done))
	}
}

func TestTheEndOfALockDelayByTheAPI(t *testing.T) {
	s := busy()
	var done []protocol.Action
	d := s.dashboard(t, ends(t, s, "billing/free", &done))
	shown := get(d, "/api/v1/lock?name=billing/free", "X-Forwarded-User", "chief")
	for _, member := range []string{`"delays":[{"name":"billing/free"`, `"uuid":"` + delayedHold + `"`, `"token":"7"`,
		`"revision":"99"`} {
		if shown.Code != 404 || !strings.Contains(shown.Body.String(), member) {
			t.Errorf("a free lock in its delay: %d %s", shown.Code, shown.Body)
		}
	}
	for name, c := range map[string]struct {
		token, revision, reason string
		status                  int
		says                    string
	}{
		"as it was shown":    {"7", `,"revision":"99"`, "it is switched off", 200, `"result":"ended"`},
		"without a revision": {"7", "", "it is switched off", 400, "the revision of the lock delay"},
		"of another delay":   {"7", `,"revision":"98"`, "it is switched off", 409, `"code":"delay_over"`},
		"of another hold":    {"8", `,"revision":"99"`, "it is switched off", 409, `"code":"delay_over"`},
		"without a reason":   {"7", `,"revision":"99"`, "", 422, `"code":"bad_reason"`},
	} {
		done = nil
		w := send(d, "chief", "/api/v1/lock/end-delay", "application/json", fmt.Sprintf(
			`{"name":"billing/free","uuid":%q,"token":%q,"reason":%q%s}`, delayedHold, c.token, c.reason, c.revision))
		if w.Code != c.status || !strings.Contains(w.Body.String(), c.says) || (len(done) == 1) != (c.status == 200) {
			t.Errorf("%s: %d %s, did %v", name, w.Code, w.Body, done)
		}
	}
}

func TestTheDelayOfAShareEndsAtThePageOfTheLock(t *testing.T) {
	s := busy()
	s.wait("pool", "catalog", time.Minute)
	var done []protocol.Action
	d := s.dashboard(t, ends(t, s, "pool#2", &done))
	link := strings.ReplaceAll(endLink("pool#2"), "#", "%23")
	wantWords(t, get(d, link, "X-Forwarded-User", "chief").Body.String(), "First in line is catalog on catalog-0:1")
	w := post(d, "chief", link, endForm("pool#2"))
	if w.Code != http.StatusSeeOther || w.Header().Get("Location") != "/lock?name=pool" || len(done) != 1 {
		t.Errorf("%d %v, did %v", w.Code, w.Header(), done)
	}
}

func TestAForceUnlockHasTheLockDelayOfTheRecordOrTheDefault(t *testing.T) {
	for name, c := range map[string]struct {
		record, standard, want time.Duration
	}{
		"of the record":             {30 * time.Second, 10 * time.Second, 30 * time.Second},
		"the default":               {0, 10 * time.Second, 10 * time.Second},
		"none is wanted":            {metadata.NoLockDelay, 10 * time.Second, 0},
		"none, as by default it is": {0, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := busy()
			document := s.documents[stuck]
			document.LockDelay = c.record
			s.documents[stuck] = document
			var got time.Duration
			d, _ := operated(t, s, func(config *setup.Config) {
				publishing(func(p *staleness.Policy) { p.LockDelay = c.standard })(config)
				operates(config, func(on protocol.Subject, _ protocol.Action) error {
					got = on.Follows
					return nil
				}, protocol.ActionForceUnlock)
			})
			form := get(d, unlockLink(s, stuck), "X-Forwarded-User", "chief").Body.String()
			if told := strings.Contains(form, "A lock delay of "); told != (c.want > 0) {
				t.Errorf("the form tells of a delay: %v", told)
			}
			post(d, "chief", unlockLink(s, stuck), s.wanted(stuck))
			if got != c.want {
				t.Errorf("the removal has a delay of %v, want %v", got, c.want)
			}
		})
	}
}
