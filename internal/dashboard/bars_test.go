package dashboard_test

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/pkg/staleness"
)

// A bar is named by its parts from left to right, each with the place where it begins; n is what is to come, and m the
// mark of the alert.
func TestBarsOfHolds(t *testing.T) {
	const ago, ahead = time.Hour, time.Minute
	for name, c := range map[string]struct {
		hold   hold
		change func(*staleness.Policy)
		want   string
	}{
		"as expected": {hold{held: 30 * ahead, alert: 10 * ahead, unlock: 30 * ahead}, nil,
			"l67% n50% m67%"},
		"late": {hold{held: ago, alert: -15 * ahead, unlock: 15 * ahead}, nil, "l60% n80% m60%"},
		"to be removed": {hold{held: ago, alert: -30 * ahead, unlock: -15 * ahead}, nil,
			"data-s3601 l50% x75% n100% m50%"},
		"alert with unlock": {hold{held: ago, alert: ago, unlock: ago}, nil, "n50%"},
		"heartbeat": {hold{held: 19 * ahead, alert: ahead, unlock: ahead, alive: "41 of 212"}, nil,
			"beats 90% n95%"},
		"alive, own alert": {hold{held: 30 * ahead, alert: 10 * ahead, unlock: 30 * ahead, alive: "1"}, nil,
			"l67% n50% m67%"},
		"no deadline": {hold{held: ago},
			func(p *staleness.Policy) { *p = staleness.Policy{} }, "data-s4501 n80%"},
		"no end": {hold{held: ago, alert: ago},
			func(p *staleness.Policy) { *p = staleness.Policy{} }, "data-s9001 l80% n40% m80%"},
		"taken, who knows":    {hold{alert: ago, unlock: ago}, nil, ""},
		"taken in the future": {hold{held: -ahead, alert: 2 * ahead, unlock: 3 * ahead}, nil, "l0% n0% m0%"},
	} {
		s := newScene()
		c.hold.name = "lock"
		s.add(c.hold)
		config := publishing(func(p *staleness.Policy) {})
		if c.change != nil {
			config = publishing(c.change)
		}
		got := ""
		page := ok(t, s.dashboard(t, config), "/")
		bar := regexp.MustCompile(`<svg[^>]*><rect/>.*?</svg>`).FindString(page)
		for _, part := range regexp.MustCompile(`(data-s)="(\d+)"|#(beats)|(?:class="(\w)" )?x="(\d+%)"`).
			FindAllStringSubmatch(bar, -1) {
			got += " " + strings.Join(part[1:], "")
		}
		if got = strings.TrimSpace(got); got != c.want {
			t.Errorf("%s: the bar is %q, want %q", name, got, c.want)
		}
	}
}
