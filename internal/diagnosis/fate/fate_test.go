package fate_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/diagnosis/fate"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

// unlocker removes locks by the default policy, changed.
func unlocker(id string, change func(*staleness.Policy), exclude ...string) metadata.Presence {
	p := staleness.DefaultPolicy()
	if change != nil {
		change(&p)
	}
	return metadata.Presence{ID: id, Mode: fate.AutoUnlock, RemovalPolicy: p.ToPresence(exclude)}
}

func of(running ...metadata.Presence) []metadata.Presence { return running }

func in(mode string, p metadata.Presence) metadata.Presence {
	p.Mode = mode
	return p
}

func TestFastestUnlockerDetermines(t *testing.T) {
	slow := unlocker("slow", func(p *staleness.Policy) {
		p.ClockSkew = time.Minute
		p.AbandonedGrace = time.Second
		p.LockDelay = time.Minute
	})
	quick := unlocker("quick", func(p *staleness.Policy) {
		p.UnlockAbandoned = true
		p.DefaultAutoUnlockAfter = 2 * time.Hour
	})
	want := staleness.DefaultPolicy()
	want.UnlockAbandoned = true
	want.DefaultAutoUnlockAfter = 2 * time.Hour
	want.LockDelay = time.Minute
	silent := metadata.Presence{ID: "old", Mode: fate.AutoUnlock}
	standard := staleness.DefaultPolicy()
	reports := unlocker("reports", nil)
	for name, c := range map[string]struct {
		running []metadata.Presence
		want    fate.Fate
		known   bool
	}{
		"none runs":           {nil, fate.Fate{}, false},
		"one":                 {of(reports), fate.Fate{Unlockers: 1, Removes: true, Policy: standard}, true},
		"two":                 {of(slow, quick), fate.Fate{Unlockers: 2, Removes: true, Policy: want}, true},
		"the other way round": {of(quick, slow), fate.Fate{Unlockers: 2, Removes: true, Policy: want}, true},
		"what watches does not matter": {of(reports, in("dry-run", quick)),
			fate.Fate{Unlockers: 2, Removes: true, Policy: standard}, true},
		"all watch": {of(in("dry-run", quick), in("alert-only", quick)),
			fate.Fate{Unlockers: 2, Watching: "alert-only, dry-run", Policy: quickPolicy(quick)}, true},
		"one is older": {of(silent, reports), fate.Fate{Unlockers: 2, Removes: true,
			Policy: standard, Silent: []string{"old"}}, false},
		"one is older and only watches": {of(in("alert-only", silent), reports),
			fate.Fate{Unlockers: 2, Removes: true, Policy: standard}, true},
	} {
		t.Run(name, func(t *testing.T) {
			got := fate.Of(c.running)
			if got.Known() != c.known {
				t.Errorf("known is %v", got.Known())
			}
			if got.Unlockers != c.want.Unlockers || got.Removes != c.want.Removes || got.Policy != c.want.Policy ||
				got.Watching != c.want.Watching || !reflect.DeepEqual(got.Silent, c.want.Silent) {
				t.Errorf("got  %+v\nwant %+v", got, c.want)
			}
		})
	}
}

func quickPolicy(p metadata.Presence) staleness.Policy {
	policy, _ := staleness.FromPresence(p.RemovalPolicy)
	return policy
}

func TestALockIsSafeOnlyIfEveryUnlockerExcludesIt(t *testing.T) {
	silent := metadata.Presence{ID: "old", Mode: fate.AutoUnlock}
	one := unlocker("one", nil, "db/*", "cron")
	two := unlocker("two", nil, "db/?")
	var many []metadata.Presence
	for i := range 20 {
		many = append(many, unlocker(fmt.Sprint(i), nil, "db/*", fmt.Sprint(i)))
	}
	for name, c := range map[string]struct {
		running []metadata.Presence
		want    bool
	}{
		"one excludes it":              {of(one), true},
		"both do":                      {of(one, two), true},
		"one does not":                 {of(one, unlocker("three", nil)), false},
		"one that watches does not":    {of(one, in("alert-only", unlocker("three", nil))), true},
		"one does not say":             {of(one, silent), false},
		"more lists than anybody uses": {many, false},
		"bytes that are no text":       {of(unlocker("evil", nil, "\xff")), false},
	} {
		f := fate.Of(c.running)
		if got := f.Excludes("db/1"); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
		if f.Excludes("other") {
			t.Errorf("%s: another lock is excluded", name)
		}
	}
}

func TestDisagreementNamesSettingValuesAndUnlockers(t *testing.T) {
	silent := metadata.Presence{ID: "old", Mode: fate.AutoUnlock}
	unlocks := func(p *staleness.Policy) { p.UnlockAbandoned = true }
	var many []metadata.Presence
	for i := range 9 {
		many = append(many, unlocker(fmt.Sprint(i), func(p *staleness.Policy) {
			p.ClockSkew = time.Duration(i/4+1) * time.Second
		}))
	}
	for name, c := range map[string]struct {
		running []metadata.Presence
		want    []string
	}{
		"they agree":       {of(unlocker("a", unlocks, "x", "y"), unlocker("b", unlocks, "y", "x")), nil},
		"one does not say": {of(unlocker("a", nil), silent), nil},
		"about the dead": {of(unlocker("b", unlocks), unlocker("a", nil)),
			[]string{"sweep.abandoned is report for a, unlock for b"}},
		"about what they do": {of(unlocker("b", nil), in("dry-run", unlocker("a", nil))),
			[]string{"mode is auto-unlock for b, dry-run for a"}},
		"about names": {of(unlocker("a", nil, "\x1b*"), unlocker("b\n", nil)),
			[]string{`sweep.exclude is empty for b\n, \x1b* for a`}},
		"many": {many,
			[]string{"sweep.clock-skew is 1s for 0, 1, 2 and 1 more, 2s for 4, 5, 6 and 1 more, 3s for 8"}},
		"a policy that is no one": {of(unlocker("a", nil),
			unlocker("b", func(p *staleness.Policy) { p.MinWarning = 0 })), nil},
	} {
		var got []string
		for _, d := range fate.Disagreements(c.running) {
			got = append(got, d.String())
		}
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %q", name, strings.Join(got, "; "))
		}
	}
}

func TestUnlockersPauseTogether(t *testing.T) {
	held := func(rules ...staleness.Rule) metadata.Presence {
		p := metadata.Presence{Mode: fate.AutoUnlock}
		for _, r := range rules {
			p.HeldBack = append(p.HeldBack, string(r))
		}
		return p
	}
	gap := held(staleness.RuleGap)
	clock := held(staleness.RuleClock, staleness.RuleGap)
	watches := metadata.Presence{Mode: "dry-run"}
	for name, c := range map[string]struct {
		got  []string
		want int
	}{
		"all":                {fate.Pause([]metadata.Presence{watches, clock, gap}), 2},
		"one is free":        {fate.Pause([]metadata.Presence{clock, held()}), 0},
		"one but for a rule": {fate.Pause([]metadata.Presence{clock, gap}, staleness.RuleGap), 0},
		"all but for a rule": {fate.Pause([]metadata.Presence{clock, clock}, staleness.RuleGap), 1},
		"none removes":       {fate.Pause([]metadata.Presence{watches}), 0},
	} {
		if len(c.got) != c.want {
			t.Errorf("%s: %v", name, c.got)
		}
	}
}
