package alerttext_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/diagnosis/alerttext"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

// normal is a text on one line, with one time and one quote.
func normal(text string) string {
	text = strings.Join(strings.Fields(strings.ReplaceAll(text, "''", "'")), " ")
	return regexp.MustCompile(`\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ`).ReplaceAllString(text, "T")
}

// Every sentence is that of Prometheus' rules, in the cases for which promtool tests what the rules make of a lock.
func TestTextsMatchTheRules(t *testing.T) {
	b, err := os.ReadFile("../../../deploy/prometheus/tests/locks.test.yaml")
	if err != nil {
		t.Fatal(err)
	}
	rules := normal(string(b))
	at := time.Unix(90, 0)
	billing := alerttext.Hold{Lock: "billing/run #1", Owner: "billing", Host: "host-1"}
	for name, says := range map[string]alerttext.Text{
		"alerting":              alerttext.Alerting(billing, at),
		"alerting, of somebody": alerttext.Alerting(alerttext.Hold{Lock: "l"}, at),
		"container ended": alerttext.Abandoned(billing,
			&metadata.Statement{Cause: metadata.CauseContainerEnded}, at),
		"process of somebody ended": alerttext.Abandoned(alerttext.Hold{Lock: "l1"},
			&metadata.Statement{Cause: metadata.CauseProcessEnded}, at),
		"rebooted": alerttext.Abandoned(alerttext.Hold{Lock: "l2", Owner: "o"},
			&metadata.Statement{Cause: metadata.CauseRebooted}, at),
		"pod ended": alerttext.Abandoned(alerttext.Hold{Lock: "l", Owner: "o", Host: "h"},
			&metadata.Statement{Cause: metadata.CausePodEnded}, at),
		"expired": alerttext.Expired(alerttext.Hold{Lock: "l", Owner: "billing", Host: "host-1"}, at),
		"removed": alerttext.Removed(alerttext.Hold{Lock: "l", Owner: "billing", Host: "host-1"}, at),
		"clock behind": alerttext.ClockOff(alerttext.Hold{Lock: "late", Owner: "billing", Host: "h1"},
			-6*time.Minute),
		"clock of somebody, ahead": alerttext.ClockOff(alerttext.Hold{Lock: "early"}, 24*time.Hour),
		"unclaimed":                alerttext.Unclaimed(alerttext.Hold{Lock: "l"}, at),
		"unclaimed, by search": alerttext.Unclaimed(
			alerttext.Hold{Lock: "orders/settle #1", Owner: "search", Host: "host-2"}, at),
		"deadlock": alerttext.Deadlock("orders, stock", "billing on host-1:7, search on host-2:8", at),
	} {
		for _, sentence := range []string{says.Summary, says.Description} {
			if !strings.Contains(rules, normal(sentence)) {
				t.Errorf("%s: the rules do not say\n%s", name, sentence)
			}
		}
	}
	// The rules count malformed locks, so theirs is in the plural.
	says := alerttext.Malformed(alerttext.Hold{Lock: "l"}).Description
	_, consequence, _ := strings.Cut(says, ". ")
	many := strings.NewReplacer("it is overdue", "these locks are overdue", "it is not", "they are not",
		"such locks", "them").Replace(consequence)
	if !strings.Contains(rules, normal(many)) {
		t.Errorf("the rules do not say\n%s", many)
	}
}

func TestMostUrgentAlertIsChosen(t *testing.T) {
	now := time.Date(2026, 3, 14, 3, 0, 0, 0, time.UTC)
	sound := func() *metadata.Record {
		return &metadata.Record{Name: "a", UUID: "0b2d1c1e-6a8e-4f0e-9d55-3a5f6f2a7b11", Token: 7,
			Holder: metadata.Holder{Owner: "o", Hostname: "h"}, LockedAt: now.Add(-time.Hour),
			AlertAt: now.Add(time.Hour), AutoUnlockAt: now.Add(2 * time.Hour)}
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
		says := alerttext.Of(r, v)
		if says.Summary != want || !strings.HasSuffix(says.Description, ".") {
			t.Errorf("it says %q, want %q", says, want)
		}
	}
	r := sound()
	held := alerttext.Of(r, staleness.Judge(r, staleness.DefaultPolicy(), staleness.Moment{Wall: now}))
	if want := "o on h took the lock a and expects to be done by 2026-03-14 04:00:00Z."; held.Description != want {
		t.Errorf("of a lock that is held it says %q, want %q", held.Description, want)
	}
}

func TestNamesAreOnePrintableLine(t *testing.T) {
	evil := "a\n\u202eb\x1b[31m" + strings.Repeat("x", 5000)
	says := alerttext.Alerting(alerttext.Hold{Lock: evil, Owner: evil, Host: evil}, time.Time{})
	for _, s := range []string{says.Summary, says.Description} {
		if strings.ContainsAny(s, "\n\u202e\x1b") || len(s) > 4*512 {
			t.Errorf("%d bytes: %.100q", len(s), s)
		}
	}
}
