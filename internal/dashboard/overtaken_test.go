package dashboard_test

import (
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// write writes one field of a record in etcd. The snapshot does not know it yet.
func (s *scene) write(name, field, value string) {
	s.revision++
	fields := slices.DeleteFunc(slices.Clone(s.documents[name].Fields),
		func(f metadata.Field) bool { return f.Name == field })
	document := metadata.Decode(name, append(fields, metadata.Field{Name: field, Value: value,
		CreateRevision: s.revision, ModRevision: s.revision}))
	document.Seen = s.documents[name].Seen
	s.documents[name] = document
}

// hidden are the fields of a form that nobody types.
func hidden(page string) url.Values {
	f := url.Values{}
	for _, m := range regexp.MustCompile(`<input type="hidden" name="(\w+)" value="([^"]*)">`).
		FindAllStringSubmatch(page, -1) {
		f.Set(m[1], m[2])
	}
	return f
}

func TestWhatOthersDidSinceAPersonLookedIsShownFirst(t *testing.T) {
	const free = "drm/rotate-keys" // of which no sign of life is known
	request := func(by string) func(*scene) {
		return func(s *scene) {
			s.write(stuck, metadata.FieldAsked, protocol.Marshal(metadata.Request{UUID: uuid(stuck),
				Token: s.documents[stuck].Token, By: by, At: metadata.Time{Time: s.now}, Reason: "the deploy waits"}))
		}
	}
	acknowledgement := func(by string) func(*scene) {
		return func(s *scene) {
			s.write(stuck, metadata.FieldAcknowledged, protocol.Marshal(metadata.Acknowledgement{UUID: uuid(stuck),
				Token: s.documents[stuck].Token, By: by, At: metadata.Time{Time: s.now},
				Until: metadata.Time{Time: s.now.Add(time.Hour)}, Note: "on it"}))
		}
	}
	extension := func(by string) func(*scene) {
		return func(s *scene) {
			s.write(stuck, metadata.FieldExtended, protocol.Marshal(metadata.Extension{UUID: uuid(stuck),
				Token: s.documents[stuck].Token, By: by, At: metadata.Time{Time: s.now}, Reason: "slow",
				Seconds: 1800}))
		}
	}
	deadline := func(lock string) func(*scene) {
		return func(s *scene) {
			s.write(lock, metadata.FieldAutoUnlockAt, metadata.FormatTime(s.now.Add(3*time.Hour)))
		}
	}
	for name, c := range map[string]struct {
		what, lock string
		change     func(*scene)
		says, then string // empty: it is done
	}{
		"asked": {"ask", stuck, request("bob"), "bob has asked the holder to finish since you looked, so nothing was " +
			"done.", `asked by bob 0s ago: "the deploy waits"`},
		"asked by myself": {"ask", stuck, request("chief"), "You have already asked the holder to finish, so nothing " +
			"was done now.", "asked by chief 0s ago"},
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
					t.Errorf("the form has lost what was typed: there is no %s in %s", typed, page)
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
				t.Errorf("the person who has read it gets %d: %s", w.Code, words(w.Body.String()))
			}
		})
	}
}

func TestTimesMayBeTypedAsThePageWritesThem(t *testing.T) {
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
	wantWords(t, w.Body.String(), "Which time is it? You chose 30m and typed 4h.")
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
