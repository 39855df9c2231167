package dashboard_test

import (
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/dashboard/locks"
	"github.com/clustermutex/unlocker/internal/dashboard/site"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

func TestTimesAheadAreRoundedToTheNearestUnit(t *testing.T) {
	s := newScene()
	for name, ahead := range map[string]time.Duration{
		"a": 5*time.Minute - time.Second, "b": 4*time.Minute + 29*time.Second, "c": 2 * time.Minute,
		"d": 119 * time.Second,
		"e": 59*time.Minute + 40*time.Second, "f": 24*time.Hour - 10*time.Second, "g": 3*24*time.Hour + 40*time.Minute,
		"h": 240*time.Hour - time.Minute,
	} {
		s.add(hold{name: name, owner: "o", held: 5*time.Minute - time.Second, alert: ahead,
			unlock: ahead + 1000*time.Hour})
	}
	page := ok(t, s.dashboard(t), "/?sort=name")
	wantWords(t, page, "a o unknown 4m in 5m", "b o unknown 4m in 4m", "c o unknown 4m in 2m", "d o unknown 4m in 1:59",
		"e o unknown 4m in 1h",
		"f o unknown 4m in 1d", "g o unknown 4m in 3d 1h", "h o unknown 4m in 10d")
}

// States and endings have a badge, an icon and a term that finds them.
func TestEveryWordForAStateOrAnEndingIsDrawnExplainedAndFound(t *testing.T) {
	d := busy().dashboard(t)
	style := ok(t, d, regexp.MustCompile(`/[^" ]*app[^" ]*\.css[^" ]*`).FindString(ok(t, d, "/")))
	help := ok(t, d, "/help")
	drawn := func(word, icon string) {
		t.Helper()
		if !strings.Contains(style, ".badge."+word) {
			t.Errorf("the badge of %s has no colour", word)
		}
		if !strings.Contains(help, `<symbol id="i-`+icon+`"`) {
			t.Errorf("%s has no icon", word)
		}
	}
	found := func(term string) {
		t.Helper()
		if page := ok(t, d, "/history?q="+term); strings.Contains(page, "Left out") {
			t.Errorf("nothing is found by %s", term)
		}
	}
	for _, s := range metadata.States() {
		drawn(string(s.State), string(s.State))
		found("state:" + string(s.State))
		wantWords(t, help, string(s.State)+" "+s.Means)
		if w := get(d, "/icon.svg?look="+string(s.State)+"&n=1"); w.Code != http.StatusOK {
			t.Errorf("the tab of %s has no icon: %d", s.State, w.Code)
		}
	}
	for _, e := range metadata.Endings() {
		if e.Ended != metadata.EndedYielded { // which looks like one that was released
			drawn(e.Word, site.EndedIcon(e.Word))
		}
		found(locks.EndedTerm(e.Word))
		if !strings.Contains(help, e.Word+"</code>") {
			t.Errorf("the help does not name %s", e.Word)
		}
	}
}
