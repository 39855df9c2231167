package lockmetrics_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/common/expfmt"

	"github.com/clustermutex/unlocker/internal/diagnosis"
	"github.com/clustermutex/unlocker/internal/lockmetrics"
	"github.com/clustermutex/unlocker/internal/locks"
	"github.com/clustermutex/unlocker/internal/lockview"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

// now is the moment of every scrape.
var now = time.Unix(1_700_000_000, 0).UTC()

// world is what a collector reads from.
type world struct {
	locks     []*metadata.Record
	queues    map[string][]metadata.Waiter
	unclaimed []diagnosis.Unclaimed
	leased    []*locks.Row
	fresh     protocol.Freshness
	mono      time.Duration
	now       time.Time
}

func newWorld(locks ...*metadata.Record) *world {
	return &world{
		locks: locks, now: now, mono: time.Hour,
		fresh: protocol.Freshness{Synced: true, HighestRevision: 42, HeardAt: now},
	}
}

// Fresh implements [lockmetrics.Followed].
func (w *world) Fresh() protocol.Freshness { return w.fresh }

// Stats implements [lockmetrics.Followed].
func (w *world) Stats() lockview.Stats {
	one := map[string]uint64{"x": 1}
	return lockview.Stats{Resyncs: one, WatchRestarts: one, MetadataErrors: map[metadata.ProblemKind]uint64{"x": 1}}
}

func (w *world) config() lockmetrics.Config {
	return lockmetrics.Config{
		Snapshots: locks.NewSnapshots(locks.Source{
			Locks:     func() []*metadata.Record { return w.locks },
			Queues:    func() map[string][]metadata.Waiter { return w.queues },
			Unclaimed: func() []diagnosis.Unclaimed { return w.unclaimed },
			Leased:    func() []*locks.Row { return w.leased },
			Combined: func() (p diagnosis.CombinedPolicy) {
				p.Policy = staleness.DefaultPolicy()
				p.Policy.UnlockAbandoned = true
				return p
			},
			Clock: func() time.Duration { return w.mono },
		}),
		Clock:         func() time.Duration { return w.mono },
		Now:           func() time.Time { return w.now },
		Fresh:         w.Fresh,
		Disagreements: func() int { return 0 },
		Series:        lockmetrics.SeriesAlerting,
		SeriesLimit:   1000,
	}
}

// lock is a record that is to be alerted about at now+alert and removed an hour later.
func lock(name string, alert time.Duration) *metadata.Record {
	return &metadata.Record{
		Name: name, UUID: "0b2d1c1e-6a8e-4f0e-9d55-3a5f6f2a7b11", Token: 7,
		Identity: metadata.Identity{Owner: "billing", Hostname: "host-1"},
		LockedAt: now.Add(-time.Hour), AlertAt: now.Add(alert), AutoUnlockAt: now.Add(alert + time.Hour),
	}
}

// expect compares the samples of the metrics in want with want, exactly, and wants none of others. What the metrics say
// and of which type they are stands in docs/metrics.md.
func expect(t *testing.T, c prometheus.Collector, want string, others ...string) {
	t.Helper()
	samples := func(text string) (lines []string) {
		for line := range strings.Lines(text) {
			if line != "\n" && !strings.HasPrefix(line, "#") {
				lines = append(lines, line)
			}
		}
		slices.Sort(lines)
		return lines
	}
	for _, line := range samples(want) {
		others = append(others, regexp.MustCompile(`^\w+`).FindString(line))
	}
	text, err := testutil.CollectAndFormat(c, expfmt.TypeTextPlain, others...)
	proctest.Must(t, err)
	if diff := cmp.Diff(samples(want), samples(string(text))); diff != "" {
		t.Error(diff)
	}
}

func TestOnlyLocksThatNeedAttentionHaveSeries(t *testing.T) {
	unreadable := lock("unreadable", time.Hour)
	unreadable.AutoUnlockAt = time.Time{}
	w := newWorld(lock("calm", time.Hour), lock("late", -time.Minute), lock("very late", -2*time.Hour), unreadable)
	expect(t, lockmetrics.New(w.config()), `
unlocker_lock_alert_at_timestamp_seconds{hostname="host-1",lock="late",owner="billing"} 1.69999994e+09
unlocker_lock_alert_at_timestamp_seconds{hostname="host-1",lock="very late",owner="billing"} 1.6999928e+09
unlocker_lock_auto_unlock_at_timestamp_seconds{hostname="host-1",lock="late",owner="billing"} 1.70000354e+09
unlocker_lock_auto_unlock_at_timestamp_seconds{hostname="host-1",lock="very late",owner="billing"} 1.6999964e+09
unlocker_lock_series_dropped 0
unlocker_lock_state{hostname="host-1",lock="late",owner="billing",state="alerting"} 1
unlocker_lock_state{hostname="host-1",lock="unreadable",owner="billing",state="malformed"} 1
unlocker_lock_state{hostname="host-1",lock="very late",owner="billing",state="expired"} 1
unlocker_locks{state="abandoned"} 0
unlocker_locks{state="alerting"} 1
unlocker_locks{state="expired"} 1
unlocker_locks{state="held"} 1
unlocker_locks{state="malformed"} 1
unlocker_oldest_lock_timestamp_seconds 1.6999964e+09
`)
}

func TestLockIsRemovedUnlessExcluded(t *testing.T) {
	config := newWorld(lock("calm", time.Hour), lock("late", -time.Minute), lock("later", -time.Minute)).config()
	config.Excluded = func(lock string) bool { return lock != "later" }
	config.Removes = true
	expect(t, lockmetrics.New(config), `
unlocker_lock_excluded{lock="late"} 1
unlocker_lock_removed_by_timestamp_seconds{lock="later"} 1.70000358e+09
`)
}

func TestExtendingHolderIsRecognized(t *testing.T) {
	beats := lock("beats", -time.Minute)
	beats.Alive = &metadata.Alive{At: now.Add(-5 * time.Second)}
	reserved := lock("reserved", -time.Minute)
	reserved.Alive = beats.Alive
	reserved.Attributes = map[string]any{"reserved": true}
	expect(t, lockmetrics.New(newWorld(beats, reserved, lock("silent", -time.Minute)).config()), `
unlocker_lock_alive_timestamp_seconds{lock="beats"} 1.699999995e+09
`)
}

func TestInconsistenciesAreCountedByKind(t *testing.T) {
	permit := func(name string) *metadata.Record {
		r := lock(name, time.Hour)
		r.Attributes = map[string]any{metadata.AttributeKind: metadata.KindSemaphore, metadata.AttributeLimit: 1.}
		return r
	}
	config := newWorld(permit("a#1"), permit("a#2"), lock("b", time.Hour), permit("b#1"), permit("b#2")).config()
	config.Disagreements = func() int { return 2 }
	expect(t, lockmetrics.New(config), `
unlocker_disagreements 2
unlocker_inconsistent_locks{kind="endless_delay"} 0
unlocker_inconsistent_locks{kind="mixed_holders"} 1
unlocker_inconsistent_locks{kind="too_many_permits"} 2
`)
}

func TestWaitersAreCountedPerLockAndAltogether(t *testing.T) {
	w := newWorld(lock("late", -time.Minute))
	since := func(d time.Duration) metadata.Waiter {
		return metadata.Waiter{Ticket: metadata.Ticket{Since: metadata.Time{Time: now.Add(d)}}}
	}
	w.queues = map[string][]metadata.Waiter{"late": {since(-time.Minute), since(-time.Second)},
		"free": {since(-time.Hour), {}}}
	expect(t, lockmetrics.New(w.config()), `
unlocker_lock_waiters{lock="late"} 2
unlocker_longest_waiter_timestamp_seconds 1.6999964e+09
unlocker_waiters 4
`)
}

func noAlarms() ([]string, bool) { return nil, false }

func TestNoLockMetricsBeforeTheFirstList(t *testing.T) {
	w := newWorld()
	w.fresh = protocol.Freshness{}
	expect(t, lockmetrics.New(w.config()), "", "unlocker_locks", "unlocker_waiters")
	expect(t, lockmetrics.NewViewCollector("unlocker", w, noAlarms), `
unlocker_etcd_up 0
`, "unlocker_etcd_revision", "unlocker_last_sync_timestamp_seconds")
}

func TestStaleSnapshotIsStillExported(t *testing.T) {
	w := newWorld(lock("late", -time.Minute))
	w.fresh.Synced = false
	expect(t, lockmetrics.NewViewCollector("unlocker", w, noAlarms), `
unlocker_etcd_revision 42
unlocker_etcd_up 0
unlocker_last_sync_timestamp_seconds 1.7e+09
`)
	expect(t, lockmetrics.New(w.config()), `
unlocker_lock_locked_timestamp_seconds{hostname="host-1",lock="late",owner="billing"} 1.6999964e+09
`)
}

func TestAlarmsAreExportedOnlyIfKnown(t *testing.T) {
	known := false
	alarms := func() ([]string, bool) { return []string{"NOSPACE"}, known }
	c := lockmetrics.NewViewCollector("unlocker", newWorld(), alarms)
	expect(t, c, "", "unlocker_etcd_alarm")
	known = true
	expect(t, c, `
unlocker_etcd_alarm{alarm="CORRUPT"} 0
unlocker_etcd_alarm{alarm="NOSPACE"} 1
`)
}

func TestTheModeDecidesWhichLocksHaveSeries(t *testing.T) {
	w := newWorld(lock("calm", time.Hour), lock("late", -time.Minute))
	for mode, want := range map[lockmetrics.Series]int{
		lockmetrics.SeriesNone: 0, lockmetrics.SeriesAlerting: 1, lockmetrics.SeriesAll: 2,
	} {
		config := w.config()
		config.Series = mode
		c := lockmetrics.New(config)
		if n := testutil.CollectAndCount(c, "unlocker_lock_alert_at_timestamp_seconds"); n != want {
			t.Errorf("%s: %d series, want %d", mode, n, want)
		}
	}
}

func TestMostUrgentLocksKeepTheirSeries(t *testing.T) {
	w := newWorld()
	for i := range 100 {
		w.locks = append(w.locks, lock(fmt.Sprintf("lock-%02d", i), time.Duration((i*37)%100-200)*time.Minute))
	}
	config := w.config()
	config.SeriesLimit = 3
	expect(t, lockmetrics.New(config), `
unlocker_lock_alert_at_timestamp_seconds{hostname="host-1",lock="lock-00",owner="billing"} 1.699988e+09
unlocker_lock_alert_at_timestamp_seconds{hostname="host-1",lock="lock-46",owner="billing"} 1.69998812e+09
unlocker_lock_alert_at_timestamp_seconds{hostname="host-1",lock="lock-73",owner="billing"} 1.69998806e+09
unlocker_lock_rank{lock="lock-00"} 1
unlocker_lock_rank{lock="lock-46"} 3
unlocker_lock_rank{lock="lock-73"} 2
unlocker_lock_series_dropped 97
`)
}
