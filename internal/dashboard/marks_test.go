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

	"github.com/clustermutex/unlocker/internal/dashboard/setup"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

// marking switches on what takes nothing away from a holder. What is asked of etcd goes to done.
func marking(t testing.TB, s *scene, done *[]protocol.Action, fails ...error) func(*setup.Config) {
	do := func(_ protocol.Subject, a protocol.Action) error {
		s.change(func() { *done = append(*done, a) })
		return errors.Join(fails...)
	}
	return func(c *setup.Config) {
		c.Access = behindProxy(t)
		operates(c, do, protocol.ActionAsk, protocol.ActionExtend, protocol.ActionAcknowledge, protocol.ActionWithdraw)
	}
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

func TestAForceUnlockOffersWhatTakesNothingAway(t *testing.T) {
	s := busy()
	d, _ := operated(t, s, marking(t, s, new([]protocol.Action)))
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
	s := busy()
	var done []protocol.Action
	d, _ := operated(t, s, marking(t, s, &done))
	s.fresh.Heard = s.now.Add(-time.Minute)
	for name, c := range map[string]struct {
		what  string
		typed url.Values // nil: the form was only opened
		says  string     // between the uuid and the name
	}{
		"force unlock": {"unlock", url.Values{"reason": {reason}}, "--reason " + quoted},
		"ask, opened":  {"ask", nil, "--reason ''"},
		"ask": {"ask", url.Values{"reason": {reason}, "ticket": {"OPS-12"}},
			"--reason " + quoted + " --ticket OPS-12"},
		"ask, with controls": {"ask", url.Values{"reason": {"a \x1b[31m b"}}, `--reason $'a \x1b[31m b'`},
		"extend, opened":     {"extend", nil, "--by 30m --reason ''"},
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
			link := actionLink(s, c.what, stuck)
			form := s.wanted(stuck)
			for _, field := range []string{"reason", "ticket"} {
				form.Del(field)
			}
			maps.Copy(form, c.typed)
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

func TestAnAcknowledgementIsReplacedOrWithdrawn(t *testing.T) {
	s := acknowledged(t)
	var done []protocol.Action
	var fails error
	d := operators(t, s, &done, &fails)
	link := actionLink(s, "acknowledge", stuck)
	page := get(d, link, "X-Forwarded-User", "chief").Body.String()
	wantWords(t, page, "Yours replaces the acknowledgement by ann.", "Withdraw that by ann",
		`acknowledged by ann 5m ago, for another 30m: "looking at the <disk>"`)
	revision := fmt.Sprint(s.documents[stuck].Acknowledged.Revision)
	if !strings.Contains(page, `name="withdraw" value="`+revision+`"`) {
		t.Errorf("the form does not say which acknowledgement it withdraws: %s", page)
	}
	form := s.form(stuck, "", "30m")
	form.Set("withdraw", "7")
	w := post(d, "chief", link, form)
	if w.Code != http.StatusConflict || len(done) > 0 {
		t.Errorf("another one is withdrawn: %d, %v", w.Code, done)
	}
	wantWords(t, w.Body.String(), "ann has acknowledged the lock since you looked")
	form.Set("withdraw", revision)
	w = post(d, "chief", link, form)
	if w.Code != http.StatusSeeOther || len(done) != 1 || done[0].Action != protocol.ActionWithdraw ||
		done[0].Seconds != 0 || done[0].Reason != "" {
		t.Errorf("the withdrawal: %d, %+v", w.Code, done)
	}
	if !strings.Contains(s.log.String(), `"audit":"withdraw-acknowledgement","result":"success"`) {
		t.Errorf("the log does not show it: %s", &s.log)
	}
	fails = metadata.ErrChanged
	w = post(d, "chief", link, form)
	wantWords(t, w.Body.String(), "Nothing was done: somebody else has acknowledged the lock just now.")
	if w.Code != http.StatusConflict {
		t.Errorf("one that was replaced is withdrawn: %d", w.Code)
	}
	fails = nil
	r := s.documents[stuck]
	w = send(d, "chief", "/api/v1/lock/acknowledge", "application/json",
		fmt.Sprintf(`{"name":%q,"uuid":%q,"token":"%d","withdraw":true}`, stuck, r.UUID, r.Token))
	if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), `"result":"withdrawn"`) || len(done) != 3 {
		t.Errorf("by the API: %d %s", w.Code, w.Body)
	}
}

func TestTheSilenceOfAlertmanagerIsLinked(t *testing.T) {
	s := acknowledged(t)
	s.add(hold{name: `odd "\ + & name`, owner: "billing", held: time.Hour, alert: -time.Minute, unlock: time.Hour})
	d := s.dashboard(t, func(c *setup.Config) { c.Alertmanager = "https://alerts.example/am/" })
	for name, want := range map[string]string{
		stuck: `href="https://alerts.example/am/#/silences/new?filter=%7Block%3D%22` +
			strings.ReplaceAll(stuck, "/", "%2F") + `%22%7D&amp;comment=looking%20at%20the%20%3Cdisk%3E"`,
		"odd+%22%5C+%2B+%26+name": `filter=%7Block%3D%22odd%20%5C%22%5C%5C%20%2B%20%26%20name%22%7D"`,
	} {
		if page := ok(t, d, "/lock?name="+name); !strings.Contains(page, want) {
			t.Errorf("the page has no %s: %s", want, page[strings.Index(page, "alerts.example"):][:200])
		}
	}
	if page := ok(t, d, "/lock?name=drm/rotate-keys"); strings.Contains(page, "alerts.example") {
		t.Error("a lock without alerts leads to a silence")
	}
	for _, bad := range []string{"alerts.example", "ftp://alerts.example", "https://u:p@alerts.example",
		"https://alerts.example/#/x", "javascript:alert(1)", "https://alerts.example/?x=1"} {
		c := s.config()
		if c.Alertmanager = bad; c.Check() == nil {
			t.Errorf("%s is taken for Alertmanager's address", bad)
		}
	}
}

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

// delayedHold is the hold of which [delayed] tells.
const delayedHold = "6f1f6f5e-5d1c-4e52-9d2e-0a9a3f1c7b11"

func endForm(name string) url.Values {
	return url.Values{"hold": {delayedHold}, "token": {"7"}, "revision": {"99"}, "typed": {name},
		"reason": {"node-3 is  switched off"}, "ticket": {"OPS-12"}}
}

func endLink(name string) string { return "/end-delay?name=" + name + "&hold=" + delayedHold }

func TestOnlyThoseWhoMayAreLedToTheEndOfALockDelay(t *testing.T) {
	s := busy()
	d := operators(t, s, new([]protocol.Action), new(error))
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
}

func TestTheDelayOfAShareEndsAtThePageOfTheLock(t *testing.T) {
	s := busy()
	s.wait("pool", "catalog", time.Minute)
	var done []protocol.Action
	d := s.dashboard(t, delayed(s, "pool#2"), func(c *setup.Config) {
		c.Access = behindProxy(t)
		operates(c, func(_ protocol.Subject, a protocol.Action) error {
			done = append(done, a)
			return nil
		}, protocol.ActionEndDelay)
	})
	link := strings.ReplaceAll(endLink("pool#2"), "#", "%23")
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
