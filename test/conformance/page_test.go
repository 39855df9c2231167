//go:build conformance

package conformance

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// A failed check names its rule, which is a heading of the documentation.
func TestRulesAreThere(t *testing.T) {
	dropped := regexp.MustCompile(`[^a-z0-9\- ]`)
	for _, c := range checks() {
		page, anchor, _ := strings.Cut(c.rule, "#")
		text, err := os.ReadFile("../../docs/" + page)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		found := false
		for line := range strings.Lines(string(text)) {
			title := dropped.ReplaceAllString(strings.ToLower(strings.TrimSpace(strings.TrimLeft(line, "#"))), "")
			found = found || strings.HasPrefix(line, "#") && strings.ReplaceAll(title, " ", "-") == anchor
		}
		if !found {
			t.Errorf("%s: there is no rule %s", c.name, c.rule)
		}
	}
}
