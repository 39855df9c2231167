package lockmetrics_test

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/clustermutex/unlocker/internal/lockmetrics"
	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/locks"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// acknowledged is a lock that somebody looks at until now+left.
func acknowledged(name string, alert, left time.Duration) *metadata.Record {
	r := lock(name, alert)
	r.Acknowledgement = &metadata.Acknowledgement{By: "ann", Until: metadata.Time{Time: now.Add(left)}}
	return r
}

// Only locks that have other series have this one, and it never has the name of a person.
func TestAcknowledgementsHaveASeriesIfTheLockHas(t *testing.T) {
	w := newWorld(acknowledged("calm", time.Hour, time.Minute), acknowledged("late", -time.Minute, time.Minute),
		acknowledged("over", -time.Minute, 0), lock("other", -time.Minute))
	expect(t, lockmetrics.New(w.config()), `
unlocker_lock_acknowledged_until_timestamp_seconds{lock="late"} 1.70000006e+09
`)
}

// Whom an alert is for stands in labels of the series that it is made of.
func TestNamedAttributesAreLabelsOfALocksSeries(t *testing.T) {
	with := func(name string, attributes map[string]any) *metadata.Record {
		r := lock(name, -time.Minute)
		r.Attributes = attributes
		return r
	}
	w := newWorld(with("a", map[string]any{"team": "payments", "secret": "x"}), with("b", nil))
	config := w.config()
	config.Attributes = []string{"team"}
	c := lockmetrics.New(config)
	expect(t, c, `
unlocker_lock_alert_at_timestamp_seconds{hostname="host-1",lock="a",owner="billing",team="payments"} 1.69999994e+09
unlocker_lock_alert_at_timestamp_seconds{hostname="host-1",lock="b",owner="billing",team=""} 1.69999994e+09
`)
	for _, name := range []string{"locked", "auto_unlock_at"} {
		if n := testutil.CollectAndCount(c, "unlocker_lock_"+name+"_timestamp_seconds"); n != 2 {
			t.Errorf("%s: %d series, want 2", name, n)
		}
	}
}

func TestHoldersWithWrongClocksAreShown(t *testing.T) {
	// taken is a lock that arrived a minute ago, by a holder whose clock is ahead.
	taken := func(name string, ahead time.Duration) *metadata.Record {
		r := lock(name, time.Hour)
		r.LockedAt = now.Add(ahead - time.Minute)
		r.AlertAt = r.LockedAt.Add(time.Hour)
		r.AutoUnlockAt = r.LockedAt.Add(2 * time.Hour)
		r.Seen = metadata.Seen{First: 59 * time.Minute, Changed: 59 * time.Minute, Arrived: 59 * time.Minute}
		return r
	}
	w := newWorld(taken("right", 0), taken("behind", -6*time.Minute), taken("ahead", 24*time.Hour))
	expect(t, lockmetrics.New(w.config()), `
unlocker_lock_holder_clock_offset_seconds{hostname="host-1",lock="ahead",owner="billing"} 86400
unlocker_lock_holder_clock_offset_seconds{hostname="host-1",lock="behind",owner="billing"} -360
`)

	without := w.config()
	without.Series = lockmetrics.SeriesNone
	expect(t, lockmetrics.New(without), "", "unlocker_lock_holder_clock_offset_seconds")
}

// Alerts show what a lock is for. The text comes from a separate series, bounded like those of the lock, whose labels
// no hold changes.
func TestPurposeHasASeriesIfTheLockHas(t *testing.T) {
	w := newWorld()
	for i := range 20 {
		r := lock(fmt.Sprintf("late-%02d", i), -time.Minute*time.Duration(20-i))
		r.Purpose = "nightly invoices"
		w.locks = append(w.locks, r)
	}
	calm := lock("calm", time.Hour)
	silent := lock("silent", -time.Hour)
	calm.Purpose = "nobody needs to know"
	w.locks = append(w.locks, calm, silent)
	config := w.config()
	config.SeriesLimit = 3
	expect(t, lockmetrics.New(config), `
unlocker_lock_info{lock="late-00",purpose="nightly invoices"} 1
unlocker_lock_info{lock="late-01",purpose="nightly invoices"} 1
`)
	config.Series = lockmetrics.SeriesNone
	expect(t, lockmetrics.New(config), "", "unlocker_lock_info")
}

// stated is a lock whose holder, according to a witness, has ended.
func stated(name, witness string, change ...func(*metadata.Record, *metadata.Statement)) *metadata.Record {
	r := lock(name, time.Hour)
	st := metadata.Statement{Name: r.Name, UUID: r.UUID, Token: r.Token, Cause: metadata.CauseRebooted,
		Witness: witness, EndedAt: metadata.Time{Time: now.Add(-time.Minute)}, Revision: 9,
		Seen: time.Hour - time.Second}
	for _, c := range change {
		c(r, &st)
	}
	lockrecord.AttachStatements(r, &st, r.Suspicion)
	return r
}

func TestEndedHoldersAreShownAndDisputesCounted(t *testing.T) {
	suspected := lock("suspected", time.Hour)
	lockrecord.AttachStatements(suspected, nil, &metadata.Statement{Name: "suspected", UUID: suspected.UUID,
		Token: suspected.Token, Cause: metadata.CausePodDeleted, Witness: metadata.WitnessKubernetes})
	disputed := stated("disputed", metadata.WitnessHost, func(r *metadata.Record, _ *metadata.Statement) {
		r.Alive = &metadata.Alive{Revision: 10}
	})
	w := newWorld(lock("calm", time.Hour), suspected, disputed, stated("dead", metadata.WitnessHost),
		stated("unknown when", metadata.WitnessKubernetes, func(_ *metadata.Record, s *metadata.Statement) {
			s.EndedAt = metadata.Time{}
		}),
		stated("evil", "\x1b[2J"))
	disputes := `
unlocker_disputed_deaths 1
`
	expect(t, lockmetrics.New(w.config()), disputes+`
unlocker_lock_auto_unlock_at_timestamp_seconds{hostname="host-1",lock="dead",owner="billing"} 1.700000009e+09
unlocker_lock_auto_unlock_at_timestamp_seconds{hostname="host-1",lock="evil",owner="billing"} 1.700000009e+09
unlocker_lock_auto_unlock_at_timestamp_seconds{hostname="host-1",lock="unknown when",owner="billing"} 1.700000009e+09
unlocker_lock_holder_ended_timestamp_seconds{cause="rebooted",hostname="host-1",lock="dead",owner="billing"} 1.69999994e+09
unlocker_lock_holder_ended_timestamp_seconds{cause="rebooted",hostname="host-1",lock="evil",owner="billing"} 1.69999994e+09
unlocker_lock_holder_ended_timestamp_seconds{cause="rebooted",hostname="host-1",lock="unknown when",owner="billing"} 1.699999999e+09
unlocker_locks{state="abandoned"} 3
unlocker_locks{state="alerting"} 0
unlocker_locks{state="expired"} 0
unlocker_locks{state="held"} 3
unlocker_locks{state="malformed"} 0
`, "unlocker_disputed_deaths")

	without := w.config()
	without.Series = lockmetrics.SeriesNone
	expect(t, lockmetrics.New(without), disputes, "unlocker_disputed_deaths",
		"unlocker_lock_holder_ended_timestamp_seconds")
	limited := w.config()
	limited.SeriesLimit = 2
	if n := testutil.CollectAndCount(lockmetrics.New(limited), "unlocker_lock_holder_ended_timestamp_seconds"); n != 2 {
		t.Errorf("%d series, want 2", n)
	}
}

// byLock are the samples of a metric, by lock: of a histogram its count.
func byLock(t *testing.T, c *lockmetrics.Collector, name string) map[string]float64 {
	got := map[string]float64{}
	for _, m := range gather(t, c)[name].GetMetric() {
		got[m.GetLabel()[0].GetValue()] = m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
	}
	return got
}

func TestHoldsAreMeasuredByLockIfAllLocksHaveSeries(t *testing.T) {
	w := newWorld()
	config := w.config()
	config.Series, config.SeriesLimit = lockmetrics.SeriesAll, 2
	c := lockmetrics.New(config)
	check := func(name string, want map[string]float64) {
		t.Helper()
		if got := byLock(t, c, name); !maps.Equal(got, want) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	hold := func(name string) *metadata.Record {
		r := lock(name, time.Hour)
		r.AlertAt, r.AutoUnlockAt = r.LockedAt.Add(time.Minute), r.LockedAt.Add(time.Hour)
		return r
	}
	c.Ended(hold("a"), nil)
	c.Ended(hold("b"), nil)
	c.Ended(hold("b"), ending(metadata.EndingAutoUnlocked)) // nobody knows how long the work would have been
	extended := hold("a")
	extended.AlertAt = extended.AlertAt.Add(time.Hour)
	extended.MoreTime = &metadata.MoreTime{}
	c.Ended(extended, nil)
	check("unlocker_lock_hold_seconds", map[string]float64{"a": 2, "b": 1})
	check("unlocker_lock_alert_after_seconds", map[string]float64{"a": 60, "b": 60})
	check("unlocker_lock_auto_unlock_after_seconds", map[string]float64{"a": 3600, "b": 3600})

	c.Ended(hold("c"), nil) // the limit is two: b makes room
	check("unlocker_lock_hold_seconds", map[string]float64{"a": 2, "c": 1})
	check("unlocker_lock_alert_after_seconds", map[string]float64{"a": 60, "c": 60})

	wait := func(name string, since time.Duration) {
		r := hold(name)
		c.Acquired(r, metadata.Waiter{Ticket: metadata.Ticket{UUID: r.UUID,
			Since: metadata.Time{Time: r.LockedAt.Add(-since)}}})
	}
	wait("c", time.Minute)
	wait("c", -time.Minute) // its clock was set back meanwhile
	check("unlocker_lock_wait_seconds", map[string]float64{"c": 1})
	wait("d", 3*time.Second) // which makes a go
	check("unlocker_lock_wait_seconds", map[string]float64{"c": 1, "d": 1})
	check("unlocker_lock_hold_seconds", map[string]float64{"c": 1})

	config.Series = lockmetrics.SeriesAlerting
	c = lockmetrics.New(config)
	c.Ended(hold("a"), nil)
	check("unlocker_lock_hold_seconds", map[string]float64{})
}

func TestLongHeldLocksOfOtherLibrariesHaveSeriesOnRequest(t *testing.T) {
	w := newWorld()
	for name, held := range map[string]time.Duration{"long": 2 * time.Hour, "short": time.Minute} {
		r := &metadata.Record{Name: name, Identity: metadata.Identity{Owner: "node-7"}, SeenAt: now.Add(-held)}
		w.leased = append(w.leased, locks.NewLeasedRow(r, &locks.Leased{Key: name}))
	}
	config := w.config()
	const since = "unlocker_leased_lock_held_since_timestamp_seconds"
	expect(t, lockmetrics.New(config), "\nunlocker_leased_locks 2\n", since)
	config.LeasedAlertAfter = time.Hour
	expect(t, lockmetrics.New(config), since+`{lock="long",owner="node-7"} 1.6999928e+09
unlocker_leased_locks 2
`)
}
