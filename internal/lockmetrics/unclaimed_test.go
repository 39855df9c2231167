package lockmetrics_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/diagnosis/unclaimed"
	"github.com/clustermutex/unlocker/internal/lockmetrics"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// nobodyTakes is a collector with these free locks.
func nobodyTakes(series lockmetrics.Series, free ...unclaimed.Lock) *lockmetrics.Collector {
	config := newWorld().config()
	config.Series = series
	config.SeriesLimit = 3
	config.Unclaimed = func() ([]unclaimed.Lock, time.Duration) { return free, 0 }
	return lockmetrics.New(config)
}

func TestLocksThatNobodyTakesAreCountedAndNamed(t *testing.T) {
	metrics := []string{"unlocker_unclaimed_locks", "unlocker_lock_unclaimed_since_timestamp_seconds"}
	const counted = `
# HELP unlocker_unclaimed_locks Locks that nobody holds and nobody takes, although somebody waits.
# TYPE unlocker_unclaimed_locks gauge
unlocker_unclaimed_locks %d
`
	first := metadata.Waiter{Ticket: metadata.Ticket{Holder: metadata.Holder{Owner: "search\x00", Hostname: "host-2"}}}
	free := unclaimed.Lock{Name: "a b", Since: now.Add(-46 * time.Minute), Waiters: 3, First: first}
	expect(t, nobodyTakes(lockmetrics.SeriesAlerting, free), `
# HELP unlocker_lock_unclaimed_since_timestamp_seconds When this program saw the lock become free that nobody takes; owner and hostname are of the first in line.
# TYPE unlocker_lock_unclaimed_since_timestamp_seconds gauge
unlocker_lock_unclaimed_since_timestamp_seconds{hostname="host-2",lock="a b",owner="search�"} 1.69999724e+09
`+fmt.Sprintf(counted, 1), metrics...)
	expect(t, nobodyTakes(lockmetrics.SeriesAlerting), fmt.Sprintf(counted, 0), metrics...)
	expect(t, nobodyTakes(lockmetrics.SeriesNone, free), fmt.Sprintf(counted, 1), metrics...)
}

func TestFreeLocksDoNotBreakAScrapeByNumberOrName(t *testing.T) {
	var free []unclaimed.Lock
	for _, name := range hostile {
		free = append(free, unclaimed.Lock{Name: name, Since: now}, unclaimed.Lock{Name: name, Since: now})
	}
	families := gather(t, nobodyTakes(lockmetrics.SeriesAll, free...))
	if n := families["unlocker_unclaimed_locks"].GetMetric()[0].GetGauge().GetValue(); int(n) != len(free) {
		t.Errorf("%v counted, want %d", n, len(free))
	}
	if series := families["unlocker_lock_unclaimed_since_timestamp_seconds"].GetMetric(); len(series) < 1 ||
		len(series) > 3 {
		t.Errorf("%d have series, want 3 at most", len(series))
	}
}
