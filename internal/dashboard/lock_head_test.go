package dashboard_test

import (
	"fmt"
	"html"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/dashboard/setup"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// settling is a scene in which 50 processes wait for a lock whose holder has been silent for 19 minutes.
func settling() *scene {
	s := newScene()
	s.add(hold{name: "orders/settle", owner: "orders", host: "orders-7c9d8f6b5-x2k7p", purpose: "settlement of the day",
		held: 50 * time.Minute, alert: -18 * time.Minute, unlock: 4 * time.Minute, backtrace: rubyTrace,
		attributes: map[string]string{"alive": metadata.FormatAlive(s.now.Add(-19*time.Minute), "4,410 of 12,002")}})
	for i := range 50 {
		s.wait("orders/settle", fmt.Sprint("shop-", i), 25*time.Minute-time.Duration(i)*time.Second)
	}
	return s
}

func TestActionsStandBelowTheHeadlineForThoseWhoMay(t *testing.T) {
	s := settling()
	link, err := setup.ParseLink("logs=https://logs.example/{host}")
	if err != nil {
		t.Fatal(err)
	}
	links := func(c *setup.Config) { c.Links = []setup.Link{link} }
	d, _ := operated(t, s, marking(t, s, nil), links)
	bar := func(user string) (texts []string) {
		page := get(d, "/lock?name=orders/settle", "X-Forwarded-User", user).Body.String()
		head, rest, found := strings.Cut(page, `<div class="actions"`)
		if !found || !strings.HasSuffix(strings.TrimSpace(head), "</header>") {
			t.Fatalf("%s: no actions follow the headline: %s", user, words(page))
		}
		rest, _, _ = strings.Cut(rest, "</div>")
		for _, m := range regexp.MustCompile(`(?s)<(?:a|button)[^>]*>([^<]*)<`).FindAllStringSubmatch(rest, -1) {
			texts = append(texts, m[1])
		}
		return texts
	}
	helpful := []string{"logs", "copy kubectl logs", "copy for the incident"}
	want := append([]string{"Give more time…", "Ask to finish…", "Acknowledge…", "Force unlock…"}, helpful...)
	if got := bar("chief"); !slices.Equal(got, want) {
		t.Errorf("who may everything sees %q, want %q", got, want)
	}
	if got := bar("viewer"); !slices.Equal(got, helpful) {
		t.Errorf("who may only look sees %q, want %q", got, helpful)
	}
}

func TestWhatIsCopiedForAnIncidentIsPlainTextAndComplete(t *testing.T) {
	s := settling()
	copied := func(d string) string {
		m := regexp.MustCompile(`(?s)data-copy="([^"]*)" aria-label="copy for the incident`).FindStringSubmatch(d)
		if m == nil {
			t.Fatal("nothing can be copied for an incident")
		}
		return html.UnescapeString(m[1])
	}
	want := `[prod-eu] orders/settle is 18m late and silent for 19m. 50 wait, the longest for 25m. Auto-unlock in 4m.
Held by orders on orders-7c9d8f6b5-x2k7p:17 for 50m.
Slow or stuck: past its alert for 18m; last report 19m ago.
For: settlement of the day
At: app/jobs/invoice_run.rb:118 in perform
Waiting: shop-0 on shop-0-0:1 (25m), shop-1 on shop-1-0:1 (24m), shop-2 on shop-2-0:1 (24m), ` +
		`shop-3 on shop-3-0:1 (24m), shop-4 on shop-4-0:1 (24m), and 45 more
Time: 2026-11-21 03:12:41 UTC
http://example.com/lock?name=orders/settle&hold=` + uuid("orders/settle")
	if got := copied(ok(t, s.dashboard(t), "/lock?name=orders/settle")); got != want {
		t.Errorf("copied is\n%s\nwant\n%s", got, want)
	}
	hidden := ok(t, s.dashboard(t, func(c *setup.Config) { c.HideBacktraces = true }), "/lock?name=orders/settle")
	if strings.Contains(copied(hidden), "invoice_run.rb") {
		t.Error("a hidden backtrace can be copied")
	}
}

func TestLongBacktracesAndQueuesAreFolded(t *testing.T) {
	s := settling()
	var trace strings.Builder
	for i := range 30 {
		fmt.Fprintf(&trace, "app/jobs/settle.rb:%d:in 'step%d'\n", 100+i, i)
	}
	s.add(hold{name: "deep", held: time.Minute, alert: time.Hour, unlock: time.Hour, backtrace: trace.String()})
	s.add(hold{name: "nine", held: time.Minute, alert: time.Hour, unlock: time.Hour,
		backtrace: strings.Join(strings.SplitAfter(trace.String(), "\n")[:9], "")})
	d := s.dashboard(t)
	page := ok(t, d, "/lock?name=deep")
	wantWords(t, page, "settle.rb:107 in step7 show 22 more frames app/jobs/settle.rb:108 in step8")
	if n := strings.Count(words(page), "settle.rb:100 in step0"); n != 1 {
		t.Errorf("the first frame is printed %d times", n)
	}
	if strings.Contains(words(ok(t, d, "/lock?name=nine")), "more frames") {
		t.Error("a single frame is folded")
	}
	wantWords(t, ok(t, d, "/lock?name=orders/settle"), "Waiting 50", "5 shop-4 shop-4-0:1", "show 45 more", "6 shop-5")
}
