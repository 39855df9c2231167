package dashboard_test

import (
	"cmp"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/dashboard/setup"
	"github.com/clustermutex/unlocker/internal/protocol"
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
