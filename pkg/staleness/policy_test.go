package staleness_test

import (
	"strings"
	"testing"
	"time"

	. "github.com/clustermutex/unlocker/pkg/staleness"
)

func TestPolicyCheck(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Policy)
		want   string // part of the sentence; empty = fine
	}{
		{"the default policy is fine", func(*Policy) {}, ""},
		{"no skew at all is fine", func(p *Policy) { p.ClockSkew = 0 }, ""},
		{"equal default deadlines are fine", func(p *Policy) { p.DefaultAutoUnlockAfter = p.DefaultAlertAfter }, ""},
		{"a negative skew is refused", func(p *Policy) { p.ClockSkew = -1 }, "the clock skew is negative"},
		{"a negative default alert is refused", func(p *Policy) { p.DefaultAlertAfter = -1 },
			"the default alert time is negative"},
		{"a negative default auto-unlock is refused", func(p *Policy) { p.DefaultAutoUnlockAfter = -1 },
			"the default auto-unlock time is negative"},
		{"no grace for the dead is fine", func(p *Policy) { p.AbandonedGrace = 0 }, ""},
		{"a negative grace is refused", func(p *Policy) { p.AbandonedGrace = -1 },
			"the grace of abandoned locks is negative"},
		{"no warning at all is refused", func(p *Policy) { p.MinWarning = 0 }, "minimum warning"},
		{"a default auto-unlock without an alert is refused",
			func(p *Policy) { p.DefaultAlertAfter, p.DefaultAutoUnlockAfter = 0, time.Hour }, "without an alert"},
		{"a default auto-unlock before its alert is refused",
			func(p *Policy) { p.DefaultAutoUnlockAfter = time.Minute }, "shorter than"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := DefaultPolicy()
			c.change(&p)
			err := p.Check()
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%+v: %v, want %q", p, err, c.want)
			}
		})
	}
}
