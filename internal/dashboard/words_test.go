package dashboard_test

import (
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/clustermutex/unlocker/internal/dashboard/locks"
	"github.com/clustermutex/unlocker/internal/dashboard/site"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

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
