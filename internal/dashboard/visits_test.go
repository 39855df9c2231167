package dashboard_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/pkg/metadata"
)

// browser keeps cookies.
type browser struct {
	t       testing.TB
	d       http.Handler
	cookies map[string]string
	set     int // how often a cookie was set
}

func newBrowser(t testing.TB, d http.Handler) *browser {
	return &browser{t: t, d: d, cookies: map[string]string{}}
}

// look asks for a page.
func (b *browser) look(address string, headers ...string) *httptest.ResponseRecorder {
	b.t.Helper()
	var all []string
	for name, value := range b.cookies {
		all = append(all, name+"="+value)
	}
	w := get(b.d, address, append(headers, "Cookie", strings.Join(all, "; "))...)
	for _, c := range w.Result().Cookies() {
		b.set++
		b.cookies[c.Name] = c.Value
		if !c.HttpOnly || c.SameSite != http.SameSiteLaxMode || c.Path != "/" || c.Secure || c.MaxAge < 86400 {
			b.t.Errorf("the cookie is %+v", c)
		}
	}
	return w
}

// says is the line about what changed; empty: there is none.
func (b *browser) says(address string) string {
	b.t.Helper()
	w := b.look(address)
	if w.Code != http.StatusOK {
		b.t.Fatalf("GET %s answers %d", address, w.Code)
	}
	_, line, _ := strings.Cut(w.Body.String(), `data-part="since">`)
	line, _, _ = strings.Cut(line, "</div>")
	return strings.TrimSuffix(words("<p>"+line+"</p>"), " mark as seen")
}

func (b *browser) want(address, line string) {
	b.t.Helper()
	if got := b.says(address); got != line {
		b.t.Errorf("the list says %q, want %q", got, line)
	}
}

func TestListSaysWhatChangedSinceItsReaderLastLooked(t *testing.T) {
	s := busy()
	d := s.dashboard(t)
	ok(t, d, "/history") // the dashboard watches from here on
	b := newBrowser(t, d)
	b.want("/", "")
	s.tick(4 * time.Minute)
	b.want("/", "") // still the same visit
	s.tick(2 * time.Hour)
	b.want("/", "Since you last looked, 2h ago: 2 newly alerting.") // drm/rotate-keys and legacy/cron expired
	b.want("/", "Since you last looked, 2h ago: 2 newly alerting.") // as long as the visit lasts
	s.add(hold{name: "new/one", held: time.Minute, alert: time.Hour, unlock: 2 * time.Hour})
	s.add(hold{name: "new/late", held: time.Hour, alert: -time.Minute, unlock: 2 * time.Hour})
	s.tick(30 * time.Second)
	b.want("/", "Since you last looked, 2h ago: 3 newly alerting, 2 new.")
	for _, name := range []string{"catalog/sync/eu", "gone/meanwhile"} {
		e := s.over(name, metadata.EndedReleased, "", "", time.Hour, 0)
		d.Ended(&metadata.Record{Name: name, UUID: e.UUID, Token: e.Token, LockedAt: s.now.Add(-time.Hour)}, nil)
	}
	b.want("/", "Since you last looked, 2h ago: 3 newly alerting, 2 new, 2 ended.")

	// Its links lead to those, and to no others.
	_, line, _ := strings.Cut(b.look("/").Body.String(), `data-part="since">`)
	line, _, _ = strings.Cut(line, "</div>")
	links := attributes(line, "href")
	if len(links) != 4 {
		t.Fatalf("the links are %q", links)
	}
	for i, want := range []string{"drm/rotate-keys legacy/cron new/late", "new/late new/one"} {
		u, err := url.Parse(links[i])
		if err != nil {
			t.Fatal(err)
		}
		q := url.QueryEscape(u.Query().Get("q"))
		if got := strings.Join(names(t, d, "/api/v1/locks?sort=name&q="+q), " "); got != want {
			t.Errorf("%s leads to %s, want %s", links[i], got, want)
		}
		ok(t, d, links[i])
	}
	wantWords(t, ok(t, d, links[2]), "catalog/sync/eu", "gone/meanwhile")

	// Who marks it as seen is told no more of it.
	w := b.look(links[3])
	if to := w.Header().Get("Location"); w.Code != http.StatusFound || to != "/" {
		t.Errorf("to mark it as seen answers %d, to %q", w.Code, to)
	}
	b.want("/", "")
	s.tick(time.Hour)
	b.want("/", "Since you last looked, 1h ago: 1 newly alerting.") // new/one
}

func TestEachSearchKnowsWhenItWasLookedAt(t *testing.T) {
	s := busy()
	d := s.dashboard(t)
	ok(t, d, "/history")
	b := newBrowser(t, d)
	b.want("/?q=owner:drm", "")
	s.tick(time.Hour)
	b.want("/", "")
	b.want("/?q=owner:drm&sort=name", "Since you last looked, 1h ago: 2 newly alerting.")
	b.want("/?q=owner:crm", "")
	for i := range 20 {
		b.want("/?q=word"+string(rune('a'+i)), "")
	}
	s.tick(time.Hour)
	b.want("/?q=wordt", "Since you last looked, 1h ago: nothing new, nothing ended.")
	b.want("/?q=owner:drm", "") // forgotten: a cookie is small
	for name, value := range b.cookies {
		if len(name)+len(value) > 512 {
			t.Errorf("the cookie has %d bytes", len(value))
		}
	}
}

func TestEndedHoldsAreNotCountedFurtherThanTheDashboardKnows(t *testing.T) {
	s := busy()
	b := newBrowser(t, s.dashboard(t))
	b.look("/")
	s.tick(time.Hour)
	d := s.dashboard(t) // it was restarted
	ok(t, d, "/history")
	b.d = d
	b.want("/?q=", "Since you last looked, 1h ago: 3 newly alerting, not known how many ended.")
	e := s.over("billing/other", metadata.EndedReleased, "", "", time.Hour, 0)
	d.Ended(&metadata.Record{Name: "billing/other", UUID: e.UUID, Token: 9, LockedAt: s.now.Add(-time.Hour)}, nil)
	s.tick(time.Second)
	b.want("/", "Since you last looked, 1h ago: 3 newly alerting, at least 1 ended.")
	s.relists++ // an interruption of the watch
	s.tick(time.Hour)
	ok(t, d, "/history")
	s.tick(time.Hour)
	b.want("/", "Since you last looked, 2h ago: not known how many ended.")
}

func TestLookingAtAListCostsNoMoreThanBefore(t *testing.T) {
	s := busy()
	d := s.dashboard(t)
	ok(t, d, "/history")
	b := newBrowser(t, d)
	b.look("/")
	s.tick(30 * time.Second)
	etag := b.look("/").Header().Get("ETag")
	if b.set != 1 {
		t.Errorf("a cookie was set %d times in half a minute", b.set)
	}
	s.tick(31 * time.Second)
	if w := b.look("/?fragment=rows", "If-None-Match", etag); w.Code != http.StatusNotModified || b.set != 2 {
		t.Errorf("the list that did not change answers %d, and cookies were set %d times", w.Code, b.set)
	}
	s.tick(10 * time.Minute) // for which it was not on a screen
	w := b.look("/?fragment=rows", "If-None-Match", etag)
	if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), "Since you last looked") {
		t.Errorf("after ten minutes it answers %d without saying what changed", w.Code)
	}
	etag = w.Header().Get("ETag")
	if w := b.look("/", "If-None-Match", etag); w.Code != http.StatusNotModified {
		t.Errorf("the same again answers %d", w.Code)
	}
	d.Ended(&metadata.Record{Name: "x", UUID: "u", Token: 5}, nil)
	if w := b.look("/", "If-None-Match", etag); w.Code != http.StatusOK {
		t.Errorf("when a hold ended it answers %d", w.Code)
	}
}

func TestWhatACookieSaysIsNotTrusted(t *testing.T) {
	s := busy()
	d := s.dashboard(t)
	b := newBrowser(t, d)
	b.look("/")
	if len(b.cookies) != 1 {
		t.Fatalf("the cookies are %v", b.cookies)
	}
	for name, sound := range b.cookies {
		search, _, _ := strings.Cut(sound, ".")
		for _, value := range []string{"", "~", "..", search, search + ".0", search + ".1.-1",
			search + ".zzzzzzzzzzzz.zzzzzzzzzzzz",
			search + ".0.zzzzzz", search + ".tl0000.1", search + ".1.1", search + ".<b>.1",
			strings.Repeat(sound+"~", 999)} {
			b.cookies[name] = value
			if line := b.says("/"); line != "" {
				t.Errorf("with the cookie %.40q the list says %q", value, line)
			}
		}
	}
}

func TestStaleLocksAreNotSeenLaterThanTheyWereKnown(t *testing.T) {
	s := busy()
	d := s.dashboard(t)
	ok(t, d, "/history")
	b := newBrowser(t, d)
	b.look("/")
	heard := s.now
	s.now = s.now.Add(time.Hour) // etcd is away
	s.fresh.Synced = false
	s.fresh.Heard = heard
	b.want("/", "")
	s.fresh.Synced = true
	s.tick(time.Minute)
	b.want("/", "Since you last looked, 1h 1m ago: 3 newly alerting.")
}

func TestTakenAndAlertedFindLocksByTheirTimes(t *testing.T) {
	s := busy()
	s.state("drm/rotate-keys", time.Minute)
	d := s.dashboard(t)
	for q, want := range map[string]string{
		"taken:>2026-11-21T03:00:00Z":       "drm/rotate-keys",
		"taken:<2026-11-21T02:00:00Z":       "drm/rotate-keys-2",
		"-taken:>2026-11-21T02:30:00+01:00": "drm/rotate-keys-2 legacy/cron",
		"alerted:>2026-11-21T03:00:00Z":     "catalog/sync/eu drm/rotate-keys",
		"alerted:<2026-11-21T03:00:00Z":     "billing/invoice-run",
		"alerted:>2026-11-21T03:11:00Z":     "drm/rotate-keys",
	} {
		if got := strings.Join(names(t, d, "/api/v1/locks?sort=name&q="+url.QueryEscape(q)), " "); got != want {
			t.Errorf("%s finds %s, want %s", q, got, want)
		}
	}
	wantWords(t, ok(t, d, "/?q=taken:yesterday"),
		"Left out taken:yesterday: wants a comparison with a time, like taken:>2026-11-21T03:00:00Z.")
}
