//go:build conformance

package conformance

import (
	"flag"
	"os"
	"regexp"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the tables of what each client has")

// TestRulesAreThere wants the rule that a failed check names to be a heading of the documentation.
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
