package lockmetrics_test

import (
	"maps"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/lockmetrics"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// byLock are the samples of a metric, by lock: of a histogram its count.
func byLock(t *testing.T, c *lockmetrics.Collector, name string) map[string]float64 {
	got := map[string]float64{}
	for _, m := range gather(t, c)[name].GetMetric() {
		got[m.GetLabel()[0].GetValue()] = m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
	}
	return got
}

func TestHoldsAreMeasuredByLockWhereAllLocksHaveSeries(t *testing.T) {
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
	c.Ended(hold("b"), ending(metadata.EndedAutoUnlocked)) // nobody knows how long the work would have been
	extended := hold("a")
	extended.AlertAt = extended.AlertAt.Add(time.Hour)
	extended.Extended = &metadata.Extension{}
	c.Ended(extended, nil)
	check("unlocker_lock_hold_seconds", map[string]float64{"a": 2, "b": 1})
	check("unlocker_lock_alert_after_seconds", map[string]float64{"a": 60, "b": 60})
	check("unlocker_lock_auto_unlock_after_seconds", map[string]float64{"a": 3600, "b": 3600})

	c.Ended(hold("c"), nil) // the limit is two: b makes room
	check("unlocker_lock_hold_seconds", map[string]float64{"a": 2, "c": 1})
	check("unlocker_lock_alert_after_seconds", map[string]float64{"a": 60, "c": 60})

	wait := func(name string, since time.Duration) {
		r := hold(name)
		c.Taken(r, metadata.Waiter{Ticket: metadata.Ticket{UUID: r.UUID,
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
