package diagnosis_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/diagnosis"
	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

func now() time.Time { return time.Date(2026, 11, 21, 3, 12, 41, 0, time.UTC) }

func ago(d time.Duration) time.Time { return now().Add(-d) }

// held is a hold of 50 minutes that nothing else is known of.
func held() diagnosis.Input {
	return diagnosis.Input{Now: now(),
		Judged: staleness.Judgement{State: metadata.StateHeld, DueAlert: now().Add(time.Hour)},
		Record: &metadata.Record{Name: "a", UUID: "u", Token: 7,
			Identity: metadata.Identity{Owner: "o", Hostname: "h", PID: 17}, LockedAt: ago(50 * time.Minute)}}
}

type change func(*diagnosis.Input)

func facts(changes ...change) diagnosis.Input {
	f := held()
	for _, c := range changes {
		c(&f)
	}
	return f
}

func alerting(since time.Duration) change {
	return func(f *diagnosis.Input) {
		f.Record.AlertAt = ago(since)
		f.Judged = staleness.Judgement{State: metadata.StateAlerting, DueAlert: f.Record.AlertAt}
	}
}

func reported(last time.Duration, every ...time.Duration) change {
	return func(f *diagnosis.Input) {
		f.Record.Alive = &metadata.Alive{At: ago(last), Revision: 5}
		for _, d := range every {
			f.ReportInterval = d
		}
	}
}

func usually(median, p95 time.Duration) change {
	return func(f *diagnosis.Input) { f.MedianHold, f.P95Hold = median, p95 }
}

func statement(cause string, revision int64) *metadata.Statement {
	return &metadata.Statement{Name: "a", UUID: "u", Token: 7, Cause: cause, Revision: revision,
		EndedAt: metadata.Time{Time: ago(40 * time.Second)}}
}

func TestDiagnosisIsNoMoreCertainThanTheFacts(t *testing.T) {
	dies := func(revision int64) change {
		return func(f *diagnosis.Input) {
			lockrecord.AttachStatements(f.Record, statement(metadata.CauseProcessEnded, revision), nil)
		}
	}
	suspected := func(revision int64) change {
		return func(f *diagnosis.Input) {
			lockrecord.AttachStatements(f.Record, nil, statement(metadata.CausePodDeleted, revision))
		}
	}
	for name, c := range map[string]struct {
		facts diagnosis.Input
		word  diagnosis.Condition
		says  string
	}{
		"nothing is known": {facts(), diagnosis.Unknown, ""},
		"its report has no time": {facts(func(f *diagnosis.Input) {
			f.Record.LockedAt, f.Record.Alive = time.Time{}, &metadata.Alive{}
		}), diagnosis.Unknown, ""},
		"nobody holds it":      {facts(func(f *diagnosis.Input) { f.Record.Token = 0 }), diagnosis.Unknown, ""},
		"a person reserved it": {facts(alerting(time.Hour), isReservation), diagnosis.Unknown, ""},
		"a witness has proof":  {facts(dies(9)), diagnosis.Dead, "Dead: its process ended 40s ago."},
		"proof beats everything": {facts(dies(9), reported(time.Second, time.Second), waits("b", "")),
			diagnosis.Dead, "Dead: its process ended 40s ago."},
		"the holder disputes it": {facts(dies(3), reported(9*time.Second, 20*time.Second)),
			diagnosis.Working, "Nothing unusual: its process reports about every 20s, last 9s ago."},
		"the work outlives": {facts(detached, dies(9)), diagnosis.Unknown, ""},
		"a witness suspects it": {facts(suspected(9)),
			diagnosis.ProbablyDead, "Probably dead: its pod was deleted 40s ago; this is a suspicion, not proof."},
		"suspected, and heard since": {facts(suspected(3), reported(9*time.Second)),
			diagnosis.Working, "Nothing unusual: last report 9s ago."},
		"it fell silent after steady reports": {facts(alerting(18*time.Minute),
			reported(19*time.Minute, 20*time.Second)), diagnosis.ProbablyDead,
			"Probably dead: it reported about every 20s, and has been silent for 19m."},
		"as long, but it did not promise to be heard by now": {facts(reported(19*time.Minute, 20*time.Second)),
			diagnosis.Slow, "Slow or stuck: it reported about every 20s, but not for 19m."},
		"it missed its alert, not by much": {facts(alerting(10*time.Second), reported(80*time.Second, 20*time.Second)),
			diagnosis.Slow, "Slow or stuck: past its alert for 10s; it reported about every 20s, but not for 1m."},
		"one report has no rhythm": {facts(alerting(18*time.Minute), reported(19*time.Minute)), diagnosis.Slow,
			"Slow or stuck: past its alert for 18m; last report 19m ago."},
		"late, and only heartbeats since": {facts(alerting(18*time.Minute), reported(9*time.Second, 20*time.Second)),
			diagnosis.Slow, "Slow or stuck: past its alert for 18m; only heartbeats since, last 9s ago."},
		"late, and heartbeats repeat its progress": {facts(alerting(18*time.Minute),
			reported(9*time.Second, 20*time.Second),
			func(f *diagnosis.Input) { f.Record.Alive.Progress = "page 3" }), diagnosis.Slow,
			"Slow or stuck: past its alert for 18m; only heartbeats since, last 9s ago."},
		"late, but it reports progress": {facts(alerting(time.Minute), reported(2*time.Minute, 3*time.Minute),
			func(f *diagnosis.Input) { f.Record.Alive.Progress = "page 3" }), diagnosis.Slow,
			"Slow: past its alert for 1m; it reports about every 3m, last 2m ago."},
		"late, and it never reported": {facts(alerting(18 * time.Minute)), diagnosis.Slow,
			"Slow or stuck: past its alert for 18m; it never reported, and too few past holds are known to compare."},
		"longer than ever": {facts(alerting(18*time.Minute), usually(6*time.Minute, 9*time.Minute)), diagnosis.Slow,
			"Slow or stuck: held for 50m, usually 6m."},
		"longer than ever, and it reports": {facts(reported(9*time.Second, 20*time.Second),
			usually(6*time.Minute, 9*time.Minute)), diagnosis.Slow,
			"Slow: held for 50m, usually 6m; its process reports about every 20s, last 9s ago."},
		"longer than ever, and silent since": {facts(alerting(18*time.Minute), reported(19*time.Minute),
			usually(6*time.Minute, 9*time.Minute)), diagnosis.Slow,
			"Slow or stuck: held for 50m, usually 6m; last report 19m ago."},
		"as long as others": {facts(usually(40*time.Minute, time.Hour)), diagnosis.Working,
			"Nothing unusual: held for 50m, usually 40m."},
		"much longer than usual, but not than all": {facts(usually(6*time.Minute, time.Hour)), diagnosis.Working,
			"Nothing unusual: held for 50m, usually 6m, up to 1h."},
		"as long as others, but late": {facts(alerting(time.Minute), usually(40*time.Minute, time.Hour)),
			diagnosis.Slow, "Slow or stuck: past its alert for 1m; held for 50m, usually 40m."},
		"it waits for another lock": {facts(alerting(time.Minute), waits("shop/prices", "pricing on pricing-2:17")),
			diagnosis.Waiting, "Waiting: its process waits for shop/prices for 3m, held by pricing on pricing-2:17."},
		"and so does who holds that": {facts(waits("b", "x on y:1"), waits("c", "z on z:2"), waits("", "")),
			diagnosis.Waiting, "Waiting: its process waits for b for 3m, held by x on y:1, which waits for c for 3m, " +
				"held by z on z:2, which waits for this lock for 3m."},
		"longer than those that others ended": {facts(usually(6*time.Minute, 9*time.Minute), forced), diagnosis.Slow,
			"Slow or stuck: held for 50m, usually 6m when others end it."},
		"not longer than those, which says nothing": {facts(usually(40*time.Minute, time.Hour), forced),
			diagnosis.Unknown, ""},
		"a report from before the lock was taken": {facts(reported(time.Hour)), diagnosis.Unknown, ""},
		"that nobody holds": {facts(waits("shop/\u202eprices", "")), diagnosis.Waiting,
			`Waiting: its process waits for shop/\u202eprices for 3m.`},
	} {
		t.Run(name, func(t *testing.T) {
			d := diagnosis.Diagnose(c.facts)
			if says := d.String(now()); d.Condition != c.word || says != c.says {
				t.Errorf("it is %s, %q, want %s, %q", d.Condition, says, c.word, c.says)
			}
		})
	}
}

func isReservation(f *diagnosis.Input) { f.Record.Attributes = map[string]any{"reserved": true} }

func detached(f *diagnosis.Input) { f.Record.Process = &metadata.Process{Detached: true} }

func forced(f *diagnosis.Input) { f.Forced = true }

func waits(lock, holder string) change {
	return func(f *diagnosis.Input) {
		f.Waits = append(f.Waits, diagnosis.Wait{Lock: lock, Since: ago(3 * time.Minute), Holder: holder})
	}
}

func TestUsualNeedsFiveHolds(t *testing.T) {
	var past []metadata.Ending
	for i := range 5 {
		if usual, most := diagnosis.HoldPercentiles(past); usual != 0 || most != 0 {
			t.Errorf("%d holds make %v and %v usual", i, usual, most)
		}
		past = append(past, metadata.Ending{LockedAt: metadata.Time{Time: ago(time.Hour)},
			EndedAt: metadata.Time{Time: ago(time.Hour - time.Duration(i+1)*time.Minute)}})
	}
	past = append(past, metadata.Ending{EndedAt: metadata.Time{Time: now()}}) // nobody knows when it began
	if usual, most := diagnosis.HoldPercentiles(past); usual != 3*time.Minute || most != 5*time.Minute {
		t.Errorf("%v and %v are usual", usual, most)
	}
}

func TestHoldsEndedByOthersAreNotUsual(t *testing.T) {
	ending := func(how string) metadata.Ending {
		return metadata.Ending{Cause: how, LockedAt: metadata.Time{Time: ago(time.Hour)},
			EndedAt: metadata.Time{Time: now()}}
	}
	past := []metadata.Ending{ending(metadata.EndingForced), ending(metadata.EndingAutoUnlocked),
		ending(metadata.EndingAbandoned), ending(metadata.EndingForced), ending(metadata.EndingForced)}
	f := held()
	if f.AddPastHolds(past); !f.Forced || f.MedianHold != time.Hour || f.P95Hold != time.Hour {
		t.Errorf("compared with holds that others ended, the facts are %+v", f)
	}
	for _, how := range []string{metadata.EndingReleased, metadata.EndingYielded} {
		if f.AddPastHolds(append(past, ending(how))); f.Forced || f.MedianHold != 0 {
			t.Errorf("a hold was %s, and the facts are %+v", how, f)
		}
	}
}

func TestHolderWaitsWhereItsProcessQueues(t *testing.T) {
	r := held().Record
	waiter := func(owner, host string, pid int64, since time.Duration, holding bool) metadata.Waiter {
		return metadata.Waiter{Ticket: metadata.Ticket{Identity: metadata.Identity{Owner: owner, Hostname: host,
			PID: pid},
			Holding: holding,
			Since:   metadata.Time{Time: ago(since)}}}
	}
	queues := map[string][]metadata.Waiter{
		"a":     {waiter("o", "h", 17, time.Hour, false)}, // its own
		"b":     {waiter("o", "h", 18, time.Hour, false), waiter("o", "h-2", 17, time.Hour, false)},
		"c":     {waiter("o", "h", 17, time.Hour, true)},
		"d":     {waiter("o", "h", 17, time.Minute, false)},
		"later": {waiter("o", "h", 17, time.Second, false)},
	}
	holders := map[string][]*metadata.Record{}
	chain := func() (lines []string) {
		t.Helper()
		waits, err := diagnosis.WaitChain(r, queues,
			func(lock string) ([]*metadata.Record, error) { return holders[lock], nil })
		if err != nil {
			t.Error(err)
		}
		for _, w := range waits {
			lines = append(lines, fmt.Sprintf("%q %s %s", w.Lock, now().Sub(w.Since), w.Holder))
		}
		return lines
	}
	want := func(lines ...string) {
		t.Helper()
		if got := chain(); !slices.Equal(got, lines) {
			t.Errorf("it waits for %q, want %q", got, lines)
		}
	}
	want(`"d" 1m0s `)
	holds := func(lock, owner string, pid int64) {
		holders[lock] = []*metadata.Record{{Name: lock,
			Identity: metadata.Identity{Owner: owner, Hostname: "h", PID: pid}}}
	}
	holds("d", "p", 5)
	want(`"d" 1m0s p on h:5`)
	queues["e"] = []metadata.Waiter{waiter("p", "h", 5, time.Hour, false)}
	holds("e", "q", 6)
	queues["a"] = append(queues["a"], waiter("q", "h", 6, 2*time.Minute, false))
	want(`"d" 1m0s p on h:5`, `"e" 1h0m0s q on h:6`, `"" 2m0s `)
	queues["a"] = nil
	queues["d"] = append(queues["d"], waiter("q", "h", 6, time.Hour, false)) // a circle without the lock
	want(`"d" 1m0s p on h:5`, `"e" 1h0m0s q on h:6`)
	away := errors.New("away")
	_, err := diagnosis.WaitChain(r, queues, func(string) ([]*metadata.Record, error) { return nil, away })
	if !errors.Is(err, away) {
		t.Errorf("where the holders cannot be read, the error is %v", err)
	}
	if r.PID = 0; chain() != nil {
		t.Error("an unknown process waits")
	}
}
