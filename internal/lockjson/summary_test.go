package lockjson_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/lockjson"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

// normal is a text on one line, with one time and one quote.
func normal(text string) string {
	text = strings.Join(strings.Fields(strings.ReplaceAll(text, "''", "'")), " ")
	return regexp.MustCompile(`\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ`).ReplaceAllString(text, "T")
}

// hold is the record of a lock. Owner and host may be empty.
func hold(lock, owner, host string) *metadata.Record {
	return &metadata.Record{Name: lock, Holder: metadata.Holder{Owner: owner, Hostname: host}}
}

// dead is the record of a lock whose holder is proven to have ended.
func dead(r *metadata.Record, cause string) *metadata.Record {
	r.Death = &metadata.Statement{Cause: cause}
	return r
}

// Every sentence is that of Prometheus' rules, in the cases for which promtool tests what the rules make of a lock.
func TestSummariesMatchTheRules(t *testing.T) {
	b, err := os.ReadFile("../../deploy/prometheus/tests/locks.test.yaml")
	proctest.Must(t, err)
	rules := normal(string(b))
	at := time.Unix(90, 0)
	billing := func() *metadata.Record { return hold("billing/run #1", "billing", "host-1") }
	alerting := staleness.Verdict{State: staleness.Alerting, AlertAt: at}
	abandoned := staleness.Verdict{State: staleness.Abandoned, AbandonedAt: at}
	off := func(ahead time.Duration) staleness.Verdict {
		return staleness.Verdict{State: staleness.Held, ClockOff: ahead}
	}
	for name, c := range map[string]struct {
		record *metadata.Record
		judged staleness.Verdict
	}{
		"alerting":                  {billing(), alerting},
		"alerting, of somebody":     {hold("l", "", ""), alerting},
		"container ended":           {dead(billing(), metadata.CauseContainerEnded), abandoned},
		"process of somebody ended": {dead(hold("l1", "", ""), metadata.CauseProcessEnded), abandoned},
		"rebooted":                  {dead(hold("l2", "o", ""), metadata.CauseRebooted), abandoned},
		"pod ended":                 {dead(hold("l", "o", "h"), metadata.CausePodEnded), abandoned},
		"expired": {hold("l", "billing", "host-1"),
			staleness.Verdict{State: staleness.Expired, AutoUnlockAt: at}},
		"clock behind":             {hold("late", "billing", "h1"), off(-6 * time.Minute)},
		"clock of somebody, ahead": {hold("early", "", ""), off(24 * time.Hour)},
	} {
		l := lockjson.New(c.record, c.judged, nil, at)
		for _, sentence := range []string{*l.Summary, *l.Description} {
			if !strings.Contains(rules, normal(sentence)) {
				t.Errorf("%s: the rules do not say\n%s", name, sentence)
			}
		}
	}
	// The rules count malformed locks, so theirs is in the plural.
	l := lockjson.New(hold("l", "", ""), staleness.Verdict{State: staleness.Malformed}, nil, at)
	_, consequence, _ := strings.Cut(*l.Description, ". ")
	many := strings.NewReplacer("it is overdue", "these locks are overdue", "it is not", "they are not",
		"such locks", "them").Replace(consequence)
	if !strings.Contains(rules, normal(many)) {
		t.Errorf("the rules do not say\n%s", many)
	}
}

func TestMostUrgentAlertIsChosen(t *testing.T) {
	now := time.Date(2026, 3, 14, 3, 0, 0, 0, time.UTC)
	sound := func() *metadata.Record {
		r := hold("a", "o", "h")
		r.UUID = "0b2d1c1e-6a8e-4f0e-9d55-3a5f6f2a7b11"
		r.Token = 7
		r.LockedAt = now.Add(-time.Hour)
		r.AlertAt = now.Add(time.Hour)
		r.AutoUnlockAt = now.Add(2 * time.Hour)
		return r
	}
	for want, change := range map[string]func(r *metadata.Record, v *staleness.Verdict){
		"Lock a is held.": func(*metadata.Record, *staleness.Verdict) {},
		"Lock a is held longer than its holder expected.": func(r *metadata.Record, _ *staleness.Verdict) {
			r.AlertAt = now.Add(-time.Minute)
		},
		"Lock a is past its deadline and has not been removed.": func(r *metadata.Record, _ *staleness.Verdict) {
			r.AlertAt = now.Add(-time.Hour)
			r.AutoUnlockAt = now.Add(-time.Minute)
		},
		"Lock a has no uuid or no readable deadline.": func(r *metadata.Record, _ *staleness.Verdict) { r.UUID = "" },
		"The holder of lock a is dead.": func(r *metadata.Record, v *staleness.Verdict) {
			r.Death = &metadata.Statement{Cause: metadata.CausePodEnded}
			v.State = staleness.Abandoned
			v.AbandonedAt = now
		},
		"The clock of the holder of lock a is off.": func(_ *metadata.Record, v *staleness.Verdict) {
			v.ClockOff = time.Hour
		},
	} {
		r := sound()
		change(r, &staleness.Verdict{})
		v := staleness.Judge(r, staleness.DefaultPolicy(), staleness.Moment{Wall: now})
		change(r, &v)
		l := lockjson.New(r, v, nil, now)
		if *l.Summary != want || !strings.HasSuffix(*l.Description, ".") {
			t.Errorf("it says %q, want %q", *l.Summary, want)
		}
	}
	r := sound()
	held := lockjson.New(r, staleness.Judge(r, staleness.DefaultPolicy(), staleness.Moment{Wall: now}), nil, now)
	if want := "o on h took the lock a and expects to be done by 2026-03-14 04:00:00Z."; *held.Description != want {
		t.Errorf("of a lock that is held it says %q, want %q", *held.Description, want)
	}
}

func TestSummaryOfHostileNamesIsOnePrintableLine(t *testing.T) {
	evil := "a\n\u202eb\x1b[31m" + strings.Repeat("x", 5000)
	l := lockjson.New(hold(evil, evil, evil), staleness.Verdict{State: staleness.Alerting}, nil, time.Unix(90, 0))
	for _, s := range []string{*l.Summary, *l.Description} {
		if strings.ContainsAny(s, "\n\u202e\x1b") || len(s) > 4*512 {
			t.Errorf("%d bytes: %.100q", len(s), s)
		}
	}
}
