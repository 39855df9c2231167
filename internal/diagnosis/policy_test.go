package diagnosis_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/diagnosis"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

// unlocker removes locks by the default policy, changed.
func unlocker(id string, change func(*staleness.Policy), exclude ...string) metadata.Presence {
	p := staleness.DefaultPolicy()
	if change != nil {
		change(&p)
	}
	return metadata.Presence{ID: id, Mode: diagnosis.ModeAutoUnlock, RemovalPolicy: p.ToPresence(exclude)}
}

func publishedPolicy(running ...metadata.Presence) []metadata.Presence { return running }

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
	silent := metadata.Presence{ID: "old", Mode: diagnosis.ModeAutoUnlock}
	standard := staleness.DefaultPolicy()
	reports := unlocker("reports", nil)
	for name, c := range map[string]struct {
		running []metadata.Presence
		want    diagnosis.CombinedPolicy
		known   bool
	}{
		"none runs": {nil, diagnosis.CombinedPolicy{}, false},
		"one": {publishedPolicy(reports),
			diagnosis.CombinedPolicy{Unlockers: 1, Removes: true, Policy: standard}, true},
		"two": {publishedPolicy(slow, quick),
			diagnosis.CombinedPolicy{Unlockers: 2, Removes: true, Policy: want}, true},
		"the other way round": {publishedPolicy(quick, slow),
			diagnosis.CombinedPolicy{Unlockers: 2, Removes: true, Policy: want}, true},
		"what watches does not matter": {publishedPolicy(reports, in("dry-run", quick)),
			diagnosis.CombinedPolicy{Unlockers: 2, Removes: true, Policy: standard}, true},
		"all watch": {publishedPolicy(in("dry-run", quick), in("alert-only", quick)),
			diagnosis.CombinedPolicy{Unlockers: 2, Watching: "alert-only, dry-run", Policy: quickPolicy(quick)}, true},
		"one is older": {publishedPolicy(silent, reports), diagnosis.CombinedPolicy{Unlockers: 2, Removes: true,
			Policy: standard, PolicyUnknown: []string{"old"}}, false},
		"one is older and only watches": {publishedPolicy(in("alert-only", silent), reports),
			diagnosis.CombinedPolicy{Unlockers: 2, Removes: true, Policy: standard}, true},
	} {
		t.Run(name, func(t *testing.T) {
			got := diagnosis.CombinePolicies(c.running)
			if got.IsKnown() != c.known {
				t.Errorf("known is %v", got.IsKnown())
			}
			if got.Unlockers != c.want.Unlockers || got.Removes != c.want.Removes || got.Policy != c.want.Policy ||
				got.Watching != c.want.Watching || !reflect.DeepEqual(got.PolicyUnknown, c.want.PolicyUnknown) {
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
	silent := metadata.Presence{ID: "old", Mode: diagnosis.ModeAutoUnlock}
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
		"one excludes it":              {publishedPolicy(one), true},
		"both do":                      {publishedPolicy(one, two), true},
		"one does not":                 {publishedPolicy(one, unlocker("three", nil)), false},
		"one that watches does not":    {publishedPolicy(one, in("alert-only", unlocker("three", nil))), true},
		"one does not say":             {publishedPolicy(one, silent), false},
		"more lists than anybody uses": {many, false},
		"bytes that are no text":       {publishedPolicy(unlocker("evil", nil, "\xff")), false},
	} {
		f := diagnosis.CombinePolicies(c.running)
		if got := f.Excludes("db/1"); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
		if f.Excludes("other") {
			t.Errorf("%s: another lock is excluded", name)
		}
	}
}

func TestDisagreementNamesSettingValuesAndUnlockers(t *testing.T) {
	silent := metadata.Presence{ID: "old", Mode: diagnosis.ModeAutoUnlock}
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
		"they agree":       {publishedPolicy(unlocker("a", unlocks, "x", "y"), unlocker("b", unlocks, "y", "x")), nil},
		"one does not say": {publishedPolicy(unlocker("a", nil), silent), nil},
		"about the dead": {publishedPolicy(unlocker("b", unlocks), unlocker("a", nil)),
			[]string{"sweep.abandoned is report for a, unlock for b"}},
		"about what they do": {publishedPolicy(unlocker("b", nil), in("dry-run", unlocker("a", nil))),
			[]string{"mode is auto-unlock for b, dry-run for a"}},
		"about names": {publishedPolicy(unlocker("a", nil, "\x1b*"), unlocker("b\n", nil)),
			[]string{`sweep.exclude is empty for b\n, \x1b* for a`}},
		"many": {many,
			[]string{"sweep.clock-skew is 1s for 0, 1, 2 and 1 more, 2s for 4, 5, 6 and 1 more, 3s for 8"}},
		"a policy that is no one": {publishedPolicy(unlocker("a", nil),
			unlocker("b", func(p *staleness.Policy) { p.MinWarning = 0 })), nil},
	} {
		if got := diagnosis.Disagreements(c.running); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %q", name, strings.Join(got, "; "))
		}
	}
}

func TestUnlockersPauseTogether(t *testing.T) {
	held := func(rules ...staleness.Rule) metadata.Presence {
		p := metadata.Presence{Mode: diagnosis.ModeAutoUnlock}
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
		"all":                {diagnosis.HeldBackBy([]metadata.Presence{watches, clock, gap}), 2},
		"one is free":        {diagnosis.HeldBackBy([]metadata.Presence{clock, held()}), 0},
		"one but for a rule": {diagnosis.HeldBackBy([]metadata.Presence{clock, gap}, staleness.RuleGap), 0},
		"all but for a rule": {diagnosis.HeldBackBy([]metadata.Presence{clock, clock}, staleness.RuleGap), 1},
		"none removes":       {diagnosis.HeldBackBy([]metadata.Presence{watches}), 0},
	} {
		if len(c.got) != c.want {
			t.Errorf("%s: %v", name, c.got)
		}
	}
}
