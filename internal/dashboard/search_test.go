package dashboard_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/pkg/metadata"
)

func TestHistoryIsNarrowedToWhatWasNotReleased(t *testing.T) {
	s := lived(t)
	d := s.dashboard(t)
	ok(t, d, "/history")
	for i := range 8 {
		name := "job/" + string(rune('a'+i))
		d.Ended(&metadata.Record{Name: name, UUID: uuid(name), Token: int64(i + 1),
			Holder:   metadata.Holder{Owner: "jobs"},
			LockedAt: s.now.Add(-time.Hour), AlertAt: s.now.Add(time.Duration(i-1) * time.Minute)}, nil)
	}
	page := ok(t, d, "/history")
	wantWords(t, page, "10 all 8 released 0 yielded 1 auto-unlocked 0 abandoned 1 force-unlocked")
	rows := func(path string) int { return strings.Count(ok(t, d, path), `<th scope="row">`) }
	for _, c := range []struct {
		chip string
		want int
	}{{"auto-unlocked", 1}, {"force-unlocked", 1}, {"released", 8}, {"had alerted", 3}} {
		link := regexp.MustCompile(`<a class="count[^"]*" href="([^"]*)"[^>]*>(?:<svg.*?</svg>)<b>(\d+)</b> ` +
			c.chip).FindStringSubmatch(page)
		if link == nil {
			t.Fatalf("there is no chip for %s", c.chip)
		}
		if n := rows(strings.ReplaceAll(link[1], "&amp;", "&")); n != c.want || link[2] != string(rune('0'+c.want)) {
			t.Errorf("%s: the chip says %s, %s finds %d, want %d", c.chip, link[2], link[1], n, c.want)
		}
	}
	on := regexp.MustCompile(`href="/history" aria-current="true"><svg[^>]*>.*?</svg><b>8</b> released`)
	if !on.MatchString(ok(t, d, "/history?q=ended:released")) {
		t.Error("a chip that is on does not say so, or does not lead back")
	}
	wantWords(t, ok(t, d, "/history?q=job/a+ended:released"), "1 all 1 released 0 yielded 0 auto-unlocked",
		"1 hold of 10")
	wantWords(t, ok(t, d, "/history?q=ended:stolen"),
		"Left out ended:stolen: no such end: released yielded auto-unlocked abandoned force-unlocked alerted.")
	wantWords(t, ok(t, d, "/?q=ended:released"), "No lock matches.")
	if found, _ := fetch[map[string]any](t, d,
		"/api/v1/history?q=ended:force-unlocked"); len(found["holds"].([]any)) != 1 {
		t.Errorf("the API finds %v", found)
	}
}

func TestAPageHasOneSearchBoxAndItSearchesThePage(t *testing.T) {
	s := lived(t)
	d, _ := operated(t, s)
	for path, what := range map[string]string{"/": "locks", "/waiting": "waiting", "/history": "history",
		"/owners": "owners", "/audit": "audit", "/status": "locks", "/help": "locks", "/lock?name=" + stuck: "locks"} {
		page := get(d, path+map[bool]string{true: "&q=ann", false: "?q=ann"}[strings.Contains(path, "?")],
			"X-Forwarded-User", "chief").Body.String()
		if n := strings.Count(page, `role="search"`); n != 1 {
			t.Errorf("%s has %d search boxes", path, n)
			continue
		}
		target := path
		if what == "locks" {
			target = "/"
		}
		if !strings.Contains(page, `role="search" action="`+target+`"`) ||
			!slices.Contains(attributes(page, "placeholder"), "search "+what+": name, owner, host, purpose") {
			t.Errorf("the box of %s does not search %s", path, what)
		}
		if searched := strings.Contains(page, `name="q" type="search" value="ann"`); searched != (what != "locks" ||
			path == "/") {
			t.Errorf("the box of %s keeps what was searched: %v", path, searched)
		}
	}
}
