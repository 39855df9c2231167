package dashboard_test

import (
	"slices"
	"strings"
	"testing"
)

func TestEveryPageSaysHowToGetItAsJSON(t *testing.T) {
	d := lived(t).dashboard(t, withAudit)
	for _, path := range []string{"/?q=owner:billing", "/lock?name=" + stuck, "/waiting?q=x", "/owners?q=x",
		"/history?q=x", "/audit?q=x", "/status"} {
		page := ok(t, d, path)
		commands := attributes(page, "data-copy")
		curl := commands[len(commands)-1]
		// quoted where there is something to quote
		link, found := strings.CutPrefix(strings.ReplaceAll(curl, "'", ""), "curl -s http://example.com")
		if !found || !slices.Contains(attributes(page, "href"), link) ||
			get(d, link).Header().Get("Content-Type") != "application/json" {
			t.Errorf("%s has the command %s", path, curl)
		}
	}
	page := ok(t, d, "/?q=owner:billing&sort=-held")
	if csv := "/locks.csv?q=owner:billing&sort=-held"; !slices.Contains(attributes(page, "href"), csv) ||
		!strings.Contains(ok(t, d, csv), stuck) {
		t.Errorf("the list does not lead to %s", csv)
	}
}
