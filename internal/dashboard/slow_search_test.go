package dashboard_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/dashboard"
	"github.com/clustermutex/unlocker/internal/dashboard/setup"
)

func TestARegularExpressionIsLimitedByWhatItCompilesTo(t *testing.T) {
	d := busy().dashboard(t)
	for _, pattern := range []string{`(.?){999}z$`, `(?:.?){200}`, `[a-z]{400}`, `((a{10}){10}){9}`} {
		q := url.QueryEscape("name:/" + pattern + "/")
		wantWords(t, ok(t, d, "/?q="+q), "the regular expression is too costly")
		if w := get(d, "/api/v1/locks?q="+q); w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(),
			"too costly") {
			t.Errorf("the API answers %s with %d %s", pattern, w.Code, w.Body)
		}
	}
	uuids := `[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`
	for _, pattern := range []string{uuids, `(?i)^(billing|drm)/.*-[0-9]{1,9}$`} {
		if w := get(d, "/api/v1/locks?q="+url.QueryEscape("name:/"+pattern+"/")); w.Code != http.StatusOK {
			t.Errorf("the API answers %s with %d %s", pattern, w.Code, w.Body)
		}
	}
}

// longNames is a scene in which a costly expression takes far longer than any limit.
func longNames() *scene {
	s := crowd(20_000)
	for i, r := range s.locks {
		r.Name = fmt.Sprintf("%06d/", i) + strings.Repeat("billing/invoice-", 30)
	}
	return s
}

// costly is below the limit of a regular expression, but not by much; n makes it a new one.
func costly(n int) string { return "/?q=" + url.QueryEscape(fmt.Sprintf("name:/(?:.?){140}%d$/", n)) }

func TestASearchEndsWithItsReader(t *testing.T) {
	d := longNames().dashboard(t)
	ok(t, d, "/")
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	w := httptest.NewRecorder()
	d.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, costly(1), nil))
	if w.Code != http.StatusServiceUnavailable || strings.Contains(w.Body.String(), "took too long") {
		t.Errorf("the search went on after its reader had left: %d %.200s", w.Code, words(w.Body.String()))
	}
	ok(t, d, "/?q=billing")
}

func TestASearchThatTakesTooLongIsStopped(t *testing.T) {
	t.Parallel()
	d := longNames().dashboard(t)
	ok(t, d, "/")
	begin := time.Now()
	var readers sync.WaitGroup
	for range 3 { // they share one search
		readers.Go(func() {
			if w := get(d, costly(2)); w.Code != http.StatusServiceUnavailable ||
				!strings.Contains(words(w.Body.String()), "The search took too long") {
				t.Errorf("the answer is %d %s", w.Code, words(w.Body.String()))
			}
		})
	}
	readers.Wait()
	if took := time.Since(begin); took > 10*time.Second {
		t.Errorf("the search took %v", took)
	}
	ok(t, d, "/")
}

func TestAnotherSiteMayOnlyLeadHere(t *testing.T) {
	s := busy()
	framed := func(c *setup.Config) { c.FrameAncestors = []string{"https://portal.example"} }
	plain := s.dashboard(t)
	inFrames := s.dashboard(t, framed)
	for name, c := range map[string]struct {
		dashboard        *dashboard.Dashboard
		site, mode, dest string
		status           int
	}{
		"typed or bookmarked":              {plain, "none", "navigate", "document", 200},
		"a link of our own":                {plain, "same-origin", "navigate", "document", 200},
		"our own script":                   {plain, "same-origin", "cors", "empty", 200},
		"a program":                        {plain, "", "", "", 200},
		"a link from a chat":               {plain, "cross-site", "navigate", "document", 200},
		"an image elsewhere":               {plain, "cross-site", "no-cors", "image", 403},
		"a script elsewhere":               {plain, "cross-site", "cors", "empty", 403},
		"a script of a sibling":            {plain, "same-site", "no-cors", "script", 403},
		"a frame elsewhere":                {plain, "cross-site", "navigate", "iframe", 403},
		"a frame where frames are allowed": {inFrames, "cross-site", "navigate", "iframe", 200},
		"an object where they are":         {inFrames, "cross-site", "navigate", "object", 403},
		"an image where they are":          {inFrames, "cross-site", "no-cors", "image", 403},
	} {
		for _, path := range []string{"/", "/?q=name:/x/", "/lock?name=" + stuck, "/api/v1/locks", "/locks.csv"} {
			if w := get(c.dashboard, path, "Sec-Fetch-Site", c.site, "Sec-Fetch-Mode", c.mode, "Sec-Fetch-Dest",
				c.dest); w.Code != c.status {
				t.Errorf("%s: GET %s answers %d, want %d", name, path, w.Code, c.status)
			}
		}
	}
}

func TestPagesOfThePastEndWithTheirReader(t *testing.T) {
	s := lived(t)
	d := s.dashboard(t, withAudit)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, path := range []string{"/history?q=name:/x/", "/audit?q=name:/x/", "/waiting?q=name:/x/",
		"/api/v1/history?q=name:/x/", "/api/v1/audit?q=name:/x/"} {
		r := httptest.NewRequestWithContext(ctx, http.MethodGet, path, nil)
		r.SetBasicAuth("ann", "x")
		w := httptest.NewRecorder()
		d.ServeHTTP(w, r)
		if w.Code != http.StatusServiceUnavailable {
			t.Errorf("GET %s is answered with %d though its reader has left", path, w.Code)
		}
	}
}

func TestManyViewersSeeWholePicturesWhileLocksChange(t *testing.T) {
	const held = 100
	s := crowd(held)
	change := func() { // all locks at once, from one revision to the next
		s.change(func() {
			s.tick(2 * time.Second)
			s.revision++
			s.locks = slices.Clone(s.locks)
			for i, r := range s.locks {
				changed := *r
				changed.Revision = s.revision
				changed.Owner = fmt.Sprint("owner-", s.revision)
				s.locks[i] = &changed
			}
		})
	}
	change()
	d := s.dashboard(t)
	var viewers sync.WaitGroup
	for viewer := range 4 {
		viewers.Go(func() {
			for i := range 6 {
				change()
				data, _ := fetch[[]lock](t, d, "/api/v1/locks?limit=1000&fields=owner&sort="+
					[]string{"urgency", "owner", "-held"}[(viewer+i)%3])
				owners := map[any]bool{}
				for _, l := range data {
					owners[l["owner"]] = true
				}
				if len(data) != held || len(owners) != 1 {
					t.Errorf("a viewer sees %d locks of %d revisions", len(data), len(owners))
				}
				if w := get(d, "/?q=tenant"); w.Code != http.StatusOK {
					t.Errorf("the list answers %d", w.Code)
				}
			}
		})
	}
	viewers.Wait()
}
