package dashboard_test

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/dashboard/app"
	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

// marking enables the actions that take nothing away from a holder. Requests to etcd go to done.
func marking(t testing.TB, s *scene, done *[]protocol.Action, fails ...error) func(*app.Config) {
	do := func(_ protocol.ActionTarget, a protocol.Action) error {
		s.change(func() { *done = append(*done, a) })
		return errors.Join(fails...)
	}
	return func(c *app.Config) {
		c.Access = behindProxy(t)
		operates(c, do, protocol.VerbAsk, protocol.VerbExtend, protocol.VerbAcknowledge, protocol.VerbWithdraw)
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

func TestStaleFormOffersTheEquivalentCommand(t *testing.T) {
	const reason = "it's the disk"
	const quoted = `'it'\''s the disk'`
	s := busy()
	for _, r := range s.locks {
		if r.Name == "legacy/cron" {
			r.UUID, r.Token = "", 0
		}
	}
	var done []protocol.Action
	d, _ := operated(t, s, marking(t, s, &done))
	s.fresh.HeardAt = s.now.Add(-time.Minute)
	for form, works := range map[string]bool{"unlock": true, "ask": false, "extend": false, "acknowledge": false} {
		page := get(d, "/"+form+"?name=legacy/cron", "X-Forwarded-User", "chief").Body.String()
		if got := strings.Contains(page, " --uuid none"); got != works {
			t.Errorf("%s: a command for a record without a uuid is offered: %v, want %v", form, got, works)
		}
	}
	for name, c := range map[string]struct {
		what  string
		typed url.Values // nil: the form was only opened
		says  string     // after the uuid
	}{
		"force unlock": {"unlock", url.Values{"reason": {reason}}, "--reason " + quoted},
		"ask, opened":  {"ask", nil, "--reason 'REASON'"},
		"ask": {"ask", url.Values{"reason": {reason}, "ticket": {"OPS-12"}},
			"--reason " + quoted + " --ticket OPS-12"},
		"ask, with controls": {"ask", url.Values{"reason": {"a \x1b[31m b"}}, `--reason $'a \x1b[31m b'`},
		"extend, opened":     {"extend", nil, "--by 30m --reason 'REASON'"},
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
			bare, _, _ := strings.Cut(link, "&hold=")
			wantWords(t, get(d, bare, "X-Forwarded-User", "chief").Body.String(), " --uuid "+uuid(stuck))
			if c.typed != nil {
				w = post(d, "chief", link, form)
			}
			command := map[string]string{"unlock": "force-unlock", "acknowledge": "ack"}[c.what]
			if w.Code != http.StatusPreconditionFailed || len(done) > 0 {
				t.Errorf("it answers %d, and does %v", w.Code, done)
			}
			wantWords(t, w.Body.String(),
				"mutexctl "+cmp.Or(command, c.what)+" "+stuck+" --uuid "+uuid(stuck)+" "+c.says)
		})
	}
}

// The first refresh of a form replaces its head by that of the lock's page.
func TestFormShowsTheHeadOfTheLockFromTheBeginning(t *testing.T) {
	s := acknowledged(t)
	d := operators(t, s, new([]protocol.Action), new(error))
	head := func(link string) string {
		page := get(d, link, "X-Forwarded-User", "chief").Body.String()
		return regexp.MustCompile(`(?s)<header.*?</h1>\s*(.*?)\s*</header>`).FindStringSubmatch(page)[1]
	}
	for _, lock := range []string{stuck, "drm/rotate-keys", "legacy/cron"} {
		want := head("/lock?name=" + lock + "&hold=" + s.documents[lock].UUID)
		for _, form := range []string{"unlock", "ask", "extend", "acknowledge"} {
			if w := get(d, actionLink(s, form, lock), "X-Forwarded-User", "chief"); w.Code != http.StatusOK {
				continue // it makes no sense for this hold
			}
			if first := head(actionLink(s, form, lock)); first != want {
				t.Errorf("%s of %s is refreshed from\n%s to\n%s", form, lock, first, want)
			}
		}
	}
	wantWords(t, head(actionLink(s, "unlock", stuck)), "This holder is alive: it reported 1m ago.")
}

func TestAcknowledgementIsReplacedOrWithdrawn(t *testing.T) {
	s := acknowledged(t)
	var done []protocol.Action
	var fails error
	d := operators(t, s, &done, &fails)
	link := actionLink(s, "acknowledge", stuck)
	page := get(d, link, "X-Forwarded-User", "chief").Body.String()
	wantWords(t, page, "Yours replaces the acknowledgement by ann.", "Withdraw the one by ann",
		"ann is looking at it until 03:42 UTC: looking at the <disk>")
	revision := fmt.Sprint(s.documents[stuck].Acknowledgement.Revision)
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
	if w.Code != http.StatusSeeOther || len(done) != 1 || done[0].Verb != protocol.VerbWithdraw ||
		done[0].Seconds != 0 || done[0].Reason != "" {
		t.Errorf("the withdrawal: %d, %+v", w.Code, done)
	}
	if !strings.Contains(s.log.String(), `"audit":"withdraw-acknowledgement","result":"success"`) {
		t.Errorf("the log does not show it: %s", &s.log)
	}
	fails = metadata.ErrChanged
	w = post(d, "chief", link, form)
	wantWords(t, w.Body.String(), "Nothing was done: another operator has just acknowledged the lock.")
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

func TestAlertmanagerSilenceIsLinked(t *testing.T) {
	s := acknowledged(t)
	s.add(hold{name: `odd "\ + & name`, owner: "billing", held: time.Hour, alert: -time.Minute, unlock: time.Hour})
	d := s.dashboard(t, func(c *app.Config) { c.Alertmanager = "https://alerts.example/am/" })
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
func delayed(s *scene, name string) func(*app.Config) {
	return func(c *app.Config) {
		of(c).delays = func() []metadata.LockDelay {
			return []metadata.LockDelay{{Name: name, UUID: delayedHold, Token: 7,
				Owner: "billing", Hostname: "<b>host-3", Cause: metadata.EndingForced, By: "ann",
				At: metadata.Time{Time: s.now.Add(-4 * time.Second)}, Seconds: 30, Leased: true, Revision: 99}}
		}
	}
}

// delayedHold is the hold in the delay of [delayed].
const delayedHold = "6f1f6f5e-5d1c-4e52-9d2e-0a9a3f1c7b11"

func endForm(name string) url.Values {
	return url.Values{"hold": {delayedHold}, "token": {"7"}, "revision": {"99"}, "typed": {name},
		"reason": {"node-3 is  switched off"}, "ticket": {"OPS-12"}}
}

func endLink(name string) string { return "/end-delay?name=" + name + "&hold=" + delayedHold }

func TestDelayOfAShareEndsOnTheLockPage(t *testing.T) {
	s := busy()
	s.wait("pool", "catalog", time.Minute)
	var done []protocol.Action
	d := s.dashboard(t, delayed(s, "pool#2"), func(c *app.Config) {
		c.Access = behindProxy(t)
		operates(c, func(_ protocol.ActionTarget, a protocol.Action) error {
			done = append(done, a)
			return nil
		}, protocol.VerbEndDelay)
	})
	link := strings.ReplaceAll(endLink("pool#2"), "#", "%23")
	w := post(d, "chief", link, endForm("pool#2"))
	if w.Code != http.StatusSeeOther || w.Header().Get("Location") != "/lock?name=pool" || len(done) != 1 {
		t.Errorf("%d %v, did %v", w.Code, w.Header(), done)
	}
}

func TestForceUnlockUsesTheRecordsLockDelayOrTheDefault(t *testing.T) {
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
			d, _ := operated(t, s, func(config *app.Config) {
				publishing(func(p *staleness.Policy) { p.LockDelay = c.standard })(config)
				operates(config, func(on protocol.ActionTarget, _ protocol.Action) error {
					got = on.LockDelayAfter
					return nil
				}, protocol.VerbForceUnlock)
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

// write writes one field of a record in etcd. The snapshot does not know it yet.
func (s *scene) write(name, field, value string) {
	s.revision++
	fields := slices.DeleteFunc(slices.Clone(s.documents[name].Fields),
		func(f metadata.Field) bool { return f.Name == field })
	document := lockrecord.Decode(name, append(fields, metadata.Field{Name: field, Value: value,
		CreateRevision: s.revision, ModRevision: s.revision}))
	document.Seen = s.documents[name].Seen
	s.documents[name] = document
}

// hidden returns the hidden fields of a form.
func hidden(page string) url.Values {
	f := url.Values{}
	for _, m := range regexp.MustCompile(`<input type="hidden" name="(\w+)" value="([^"]*)">`).
		FindAllStringSubmatch(page, -1) {
		f.Set(m[1], m[2])
	}
	return f
}

func TestChangesSinceTheFormWasShownAreShownFirst(t *testing.T) {
	const free = "drm/rotate-keys" // of which no sign of life is known
	request := func(by string) func(*scene) {
		return func(s *scene) {
			s.write(stuck, lockrecord.FieldAsked, protocol.Marshal(metadata.FinishRequest{UUID: uuid(stuck),
				Token: s.documents[stuck].Token, By: by, At: metadata.Time{Time: s.now}, Reason: "the deploy waits"}))
		}
	}
	acknowledgement := func(by string) func(*scene) {
		return func(s *scene) {
			s.write(stuck, lockrecord.FieldAcknowledged, protocol.Marshal(metadata.Acknowledgement{UUID: uuid(stuck),
				Token: s.documents[stuck].Token, By: by, At: metadata.Time{Time: s.now},
				Until: metadata.Time{Time: s.now.Add(time.Hour)}, Note: "on it"}))
		}
	}
	extension := func(by string) func(*scene) {
		return func(s *scene) {
			s.write(stuck, lockrecord.FieldExtended, protocol.Marshal(metadata.MoreTime{UUID: uuid(stuck),
				Token: s.documents[stuck].Token, By: by, At: metadata.Time{Time: s.now}, Reason: "slow",
				Seconds: 1800}))
		}
	}
	deadline := func(lock string) func(*scene) {
		return func(s *scene) {
			s.write(lock, lockrecord.FieldAutoUnlockAt, metadata.FormatTime(s.now.Add(3*time.Hour)))
		}
	}
	for name, c := range map[string]struct {
		what, lock string
		change     func(*scene)
		says, then string // empty: it is done
	}{
		"asked": {"ask", stuck, request("bob"), "bob has asked the holder to finish since you looked, so nothing was " +
			"done.", `bob asked the holder to finish 0s ago: "the deploy waits"`},
		"asked by myself": {"ask", stuck, request("chief"), "You have already asked the holder to finish, so nothing " +
			"was done.", "chief asked the holder to finish 0s ago"},
		"acknowledged": {"acknowledge", stuck, acknowledgement("bob"), "bob has acknowledged the lock since you looked",
			"Yours replaces the acknowledgement by bob."},
		"given more time": {"extend", stuck, extension("bob"), "bob has given it more time since you looked",
			"bob gave 30m more 0s ago"},
		"extended": {"extend", free, deadline(free), "The holder has extended the lock since you looked",
			"Auto-unlock in 3h"},
		"extended by a sign":     {"extend", stuck, deadline(stuck), "", ""},
		"acknowledged, and ask":  {"ask", stuck, acknowledgement("bob"), "", ""},
		"asked, and acknowledge": {"acknowledge", stuck, request("bob"), "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := busy()
			var done []protocol.Action
			d := s.dashboard(t, marking(t, s, &done))
			link := actionLink(s, c.what, c.lock)
			form := hidden(get(d, link, "X-Forwarded-User", "chief").Body.String())
			form.Set("reason", "the disk\r\nis slow")
			form.Set("ticket", "OPS-12")
			form.Set("more", "1h")
			c.change(s)
			w := post(d, "chief", link, form)
			if c.says == "" {
				if w.Code != http.StatusSeeOther || len(done) != 1 {
					t.Fatalf("it is answered with %d: %s", w.Code, words(w.Body.String()))
				}
				return
			}
			page := w.Body.String()
			if w.Code != http.StatusConflict || len(done) > 0 {
				t.Fatalf("it is answered with %d, and did %v", w.Code, done)
			}
			wantWords(t, page, c.says, c.then)
			for _, typed := range []string{">the disk is slow</textarea>", `value="OPS-12"`} {
				if !strings.Contains(page, typed) {
					t.Errorf("the form lost the typed text: no %s in %s", typed, page)
				}
			}
			if c.what != "ask" && !strings.Contains(page, `value="1h" checked`) {
				t.Error("the form has lost the time")
			}
			counters := map[string]string{"ask": "asks", "extend": "extensions", "acknowledge": "acknowledgements"}
			if got := sample(t, d, "mutexdash_"+counters[c.what]+"_total", "conflict"); got != 1 {
				t.Errorf("%v conflicts are counted", got)
			}
			for field, value := range hidden(page) {
				form[field] = value
			}
			if w := post(d, "chief", link, form); w.Code != http.StatusSeeOther || len(done) != 1 {
				t.Errorf("the user who has read it got %d: %s", w.Code, words(w.Body.String()))
			}
		})
	}
}

func TestDisplayedTimesCanBeTyped(t *testing.T) {
	s := busy()
	var done []protocol.Action
	d := s.dashboard(t, marking(t, s, &done))
	for typed, seconds := range map[string]int64{"1h 30m": 5400, "2d": 172800, "1d 4h": 100800, " 45m ": 2700} {
		done = nil
		form := s.form(stuck, "the disk is slow", "own")
		form.Set("own", typed)
		w := post(d, "chief", actionLink(s, "extend", stuck), form)
		if w.Code != http.StatusSeeOther || len(done) != 1 || done[0].Seconds != seconds {
			t.Errorf("%q is answered with %d, and does %v", typed, w.Code, done)
		}
	}
	done = nil
	form := s.form(stuck, "the disk is slow", "30m") // which is chosen until somebody chooses another
	form.Set("own", "4h")
	w := post(d, "chief", actionLink(s, "extend", stuck), form)
	wantWords(t, w.Body.String(), "Which time do you mean? You chose 30m and typed 4h.")
	if w.Code != http.StatusUnprocessableEntity || len(done) > 0 || !strings.Contains(w.Body.String(),
		`value="own" checked`) || !strings.Contains(w.Body.String(), `name="own" value="4h"`) {
		t.Errorf("two times are answered with %d %s, and did %v", w.Code, w.Body, done)
	}
	w = post(d, "chief", actionLink(s, "extend", stuck), s.form(stuck, "the disk is slow", "own"))
	if page := w.Body.String(); !strings.Contains(page, `value="own" checked`) || strings.Contains(page,
		`value="30m" checked`) {
		t.Errorf("who has chosen a time and typed none is led to another: %s", page)
	}
}
