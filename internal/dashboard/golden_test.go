package dashboard_test

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

var update = flag.Bool("update", false, "write the pages in testdata as they are now")

// look is a page in a state.
type look struct {
	name  string
	scene func(testing.TB) *scene
	path  string
	like  string // another one, with which only the differences stand there
}

// golden are pages in their states, as they looked when they were reviewed.
func golden() []look {
	awhile := func(age time.Duration) func(testing.TB) *scene {
		return func(t testing.TB) *scene {
			s := lived(t)
			s.fresh.HeardAt = s.now.Add(-age)
			s.fresh.Synced = false
			s.fresh.Class = "no leader"
			if age > time.Minute {
				s.away = errAway
			}
			return s
		}
	}
	empty := func(testing.TB) *scene { return newScene() }
	shared := func(testing.TB) *scene { return pool() }
	dead := func(testing.TB) *scene { return mourning() }
	unheld := func(testing.TB) *scene { return neglected() }
	odd := func(testing.TB) *scene {
		s := newScene()
		s.add(hold{name: "gnp.\u202egpj.exe <b>", owner: `"><script>alert(1)</script>`, host: "a\x00b",
			purpose: "javascript:alert(1)", held: time.Hour, alert: -time.Minute, unlock: time.Hour,
			backtrace: "<b>\n" + rubyTrace})
		s.queues["gnp.\u202egpj.exe <b>"] = []metadata.Waiter{{ID: "w"}} // of whom nothing is known
		return s
	}
	return []look{
		{"list", lived, "/", ""},
		{"list-stale", awhile(4 * time.Minute), "/", "list"},
		{"list-empty", empty, "/", ""},
		{"list-filtered-empty", lived, "/?q=ended:released+state:gone+that", "list-empty"},
		{"list-hostile", odd, "/", "list-empty"},
		{"list-shared", shared, "/", "list-hostile"},
		{"list-sections", lived, "/?group=owner", "list"},
		{"list-section", lived, "/?group=owner&q=owner:=drm", "list"},
		{"list-searched", lived, "/?q=drm+held:%3E1m&sort=-held&limit=50", "list-section"},
		{"list-abandoned", dead, "/", "list"},
		{"lock", lived, "/lock?name=" + stuck, ""},
		{"lock-held", lived, "/lock?name=drm/rotate-keys", ""},
		{"lock-malformed", lived, "/lock?name=legacy/cron", "lock-held"},
		{"lock-suspected", dead, "/lock?name=" + quiet, "lock-held"},
		{"lock-abandoned", dead, "/lock?name=" + abandoned, "lock"},
		{"lock-stale", awhile(4 * time.Minute), "/lock?name=" + stuck, "lock"},
		{"lock-asked", asked, "/lock?name=" + stuck, "lock"},
		{"ask", asked, "/ask?name=" + stuck + "&hold=" + uuid(stuck), ""},
		{"extend", asked, "/extend?name=" + stuck + "&hold=" + uuid(stuck), "ask"},
		{"list-acknowledged", acknowledged, "/", "list"},
		{"lock-acknowledged", acknowledged, "/lock?name=" + stuck, "lock"},
		{"acknowledge", acknowledged, "/acknowledge?name=" + stuck + "&hold=" + uuid(stuck), "extend"},
		{"extend-malformed", lived, "/extend?name=legacy/cron&hold=" + uuid("legacy/cron"), ""},
		{"lock-not-held", lived, "/lock?name=nobody", ""},
		{"lock-unclaimed", unheld, "/lock?name=" + settle, "lock-not-held"},
		{"lock-ended", func(t testing.TB) *scene {
			s := lived(t)
			e := s.over(stuck, metadata.EndingForced, "bob", "it hung", time.Hour, time.Minute)
			delete(s.endings, e.UUID)
			e.UUID = uuid("ended")
			s.endings[e.UUID] = &e
			return s
		}, "/lock?name=" + stuck + "&hold=" + uuid("ended"), "lock-unclaimed"},
		{"lock-hostile", odd, "/lock?name=gnp.%E2%80%AEgpj.exe+%3Cb%3E", "lock-malformed"},
		{"lock-shared", shared, "/lock?name=pool", "lock-unclaimed"},
		{"lock-share", shared, "/lock?name=pool%2310", "lock-malformed"},
		{"unlock", lived, "/unlock?name=" + stuck + "&hold=" + uuid(stuck), "ask"},
		{"unlock-hostile", odd, "/unlock?name=gnp.%E2%80%AEgpj.exe+%3Cb%3E&hold=" + uuid("gnp.\u202egpj.exe <b>"),
			"unlock"},
		{"unlock-abandoned", dead, "/unlock?name=" + abandoned + "&hold=" + uuid(abandoned), "unlock"},
		{"unlock-stale", awhile(4 * time.Minute), "/unlock?name=" + stuck + "&hold=" + uuid(stuck), ""},
		{"waiting", unheld, "/waiting", ""},
		{"timeline", lived, "/timeline?window=6h", ""},
		{"timeline-stale", awhile(4 * time.Minute), "/timeline?window=15m", "timeline"},
		{"timeline-hostile", odd, "/timeline", "timeline"},
		{"timeline-shared", shared, "/timeline", "timeline-hostile"},
		{"waiting-shared", shared, "/waiting", "waiting"},
		{"waiting-nobody", empty, "/waiting", ""},
		{"history", lived, "/history", ""},
		{"history-empty", empty, "/history", ""},
		{"history-stale", awhile(4 * time.Minute), "/history", "history-empty"},
		{"audit-empty", empty, "/audit", ""},
		{"audit", lived, "/audit", "audit-empty"},
		{"status", lived, "/status", ""},
		{"status-no-unlocker", func(t testing.TB) *scene {
			s := lived(t)
			s.unlockers = nil
			s.foreign = []string{"/mutexes/.unknown/x"}
			return s
		}, "/status", "status"},
		{"status-blind-witness", func(t testing.TB) *scene {
			s := lived(t)
			s.unlockers[0].HeldBack = []string{"gap"}
			s.unlockers[0].WitnessProblem = "the API server does not accept our token or certificate: " +
				"it answers 401 Unauthorized"
			return s
		}, "/status", "status"},
		{"help", empty, "/help", ""},
		{"not-found", empty, "/nothing", ""},
		{"not-loaded", func(testing.TB) *scene {
			s := newScene()
			s.fresh = protocol.Freshness{Cause: "connection refused"}
			return s
		}, "/", ""},
	}
}

func TestPagesLookLikeTheirGoldens(t *testing.T) {
	t.Parallel()
	pages := map[string]string{}
	synctest.Test(t, func(t *testing.T) { // no read behind a page is late
		for _, g := range golden() {
			s := g.scene(t)
			d, _ := operated(t, s, marking(t, s, new([]protocol.Action)))
			w := get(d, g.path, "X-Forwarded-User", "chief")
			page := fmt.Sprintf("<!-- %d -->\n%s", w.Code, essence(w.Body.String()))
			pages[g.name] = page
			if g.like != "" {
				page = apart(page, pages[g.like])
			}
			proctest.Golden(t, "testdata/golden/"+g.name+".html", *update, page)
		}
	})
	if *update {
		return
	}
	known := map[string]bool{}
	for _, g := range golden() {
		known[g.name+".html"] = true
	}
	files, err := os.ReadDir("testdata/golden")
	proctest.Must(t, err)
	for _, f := range files {
		if !known[f.Name()] && !strings.HasPrefix(f.Name(), "sayings-") {
			t.Errorf("testdata/golden/%s belongs to no page", f.Name())
		}
	}
}

// essence returns the parts that differ between pages: the title, the banner, and everything between navigation and
// footer.
func essence(page string) string {
	page = regexp.MustCompile(`assets/[0-9a-f]{12}/`).ReplaceAllString(page, "assets/…/")
	page = regexp.MustCompile(`data-etag="[^"]*"`).ReplaceAllString(page, `data-etag="…"`)
	var kept []string
	for _, part := range []string{`<title>.*</title>`, `<body[^>]*>`, `(?s)<div id="alerts">.*</footer>`} {
		kept = append(kept, regexp.MustCompile(part).FindString(page))
	}
	return strings.Join(kept, "\n") + "\n"
}

// apart returns a diff of two pages by lines. Revisions do not count as differences.
func apart(page, other string) string {
	lines := func(s string) []string {
		return strings.Split(regexp.MustCompile(`9182\d\d`).ReplaceAllString(s, "9182…"), "\n")
	}
	var differ strings.Builder
	note := func(sign string, these, others []string) {
		for _, line := range these {
			if !slices.Contains(others, line) {
				differ.WriteString(sign + line + "\n")
			}
		}
	}
	note("-", lines(other), lines(page))
	note("+", lines(page), lines(other))
	return differ.String()
}
