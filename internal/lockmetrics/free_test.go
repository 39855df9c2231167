package lockmetrics_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/diagnosis"
	"github.com/clustermutex/unlocker/internal/diagnosis/deadlock"
	"github.com/clustermutex/unlocker/internal/lockmetrics"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// nobodyTakes is a collector with these free locks.
func nobodyTakes(series lockmetrics.Series, free ...diagnosis.Unclaimed) *lockmetrics.Collector {
	config := newWorld().config()
	config.Series = series
	config.SeriesLimit = 3
	config.Unclaimed = func() []diagnosis.Unclaimed { return free }
	return lockmetrics.New(config)
}

func TestUnclaimedLocksAreCountedAndNamed(t *testing.T) {
	metrics := []string{"unlocker_unclaimed_locks", "unlocker_lock_unclaimed_since_timestamp_seconds"}
	const counted = "\nunlocker_unclaimed_locks %d\n"
	first := metadata.Waiter{Ticket: metadata.Ticket{Identity: metadata.Identity{Owner: "search\x00",
		Hostname: "host-2"}}}
	free := diagnosis.Unclaimed{Name: "a b", Since: now.Add(-46 * time.Minute), Waiters: 3, First: first}
	expect(t, nobodyTakes(lockmetrics.SeriesAlerting, free), `
unlocker_lock_unclaimed_since_timestamp_seconds{hostname="host-2",lock="a b",owner="search�"} 1.69999724e+09
`+fmt.Sprintf(counted, 1), metrics...)
	expect(t, nobodyTakes(lockmetrics.SeriesAlerting), fmt.Sprintf(counted, 0), metrics...)
	expect(t, nobodyTakes(lockmetrics.SeriesNone, free), fmt.Sprintf(counted, 1), metrics...)
}

func TestFreeLocksDoNotBreakAScrapeByNumberOrName(t *testing.T) {
	var free []diagnosis.Unclaimed
	for _, name := range hostile {
		free = append(free, diagnosis.Unclaimed{Name: name, Since: now}, diagnosis.Unclaimed{Name: name, Since: now})
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

// cycle is two processes that wait for each other's locks.
func cycle(one, other string, since time.Time) deadlock.Cycle {
	a := deadlock.Process{Owner: "billing", Host: "host-1", PID: 7}
	b := deadlock.Process{Owner: "search", Host: "host-2", PID: 8}
	return deadlock.Cycle{Since: since, Waits: []deadlock.Wait{
		{Who: a, Lock: other, Held: []deadlock.Process{b}, Since: since},
		{Who: b, Lock: one, Held: []deadlock.Process{a}, Since: since},
	}}
}

// stuck is a collector with these cycles.
func stuck(cycles ...deadlock.Cycle) *lockmetrics.Collector {
	config := newWorld().config()
	config.Deadlocks = func() []deadlock.Cycle { return cycles }
	return lockmetrics.New(config)
}

func TestDeadlockedProcessesAreCountedAndNamed(t *testing.T) {
	expect(t, stuck(cycle("stock", "orders", now.Add(-time.Minute))), `
unlocker_deadlock_since_timestamp_seconds{holders="billing on host-1:7, search on host-2:8",locks="orders, stock"} 1.69999994e+09
unlocker_deadlocks 1
`)
	expect(t, stuck(), `
unlocker_deadlocks 0
`, "unlocker_deadlock_since_timestamp_seconds")
}

func TestAllCyclesAreCountedAndTheOldestOnesHaveSeries(t *testing.T) {
	var cycles []deadlock.Cycle
	for i := range 50 {
		cycles = append(cycles, cycle(fmt.Sprintf("stock-%02d", i), "orders", now.Add(time.Duration(i)*time.Second)))
	}
	families := gather(t, stuck(cycles...))
	series := families["unlocker_deadlock_since_timestamp_seconds"].GetMetric()
	if n := families["unlocker_deadlocks"].GetMetric()[0].GetGauge().GetValue(); n != 50 || len(series) != 20 {
		t.Fatalf("%v cycles counted, %d with series", n, len(series))
	}
	for _, m := range series {
		if m.GetGauge().GetValue() > float64(now.Unix()+19) {
			t.Errorf("%v is younger than one that has none", m)
		}
	}
}

func TestHostileNamesInCyclesDoNotBreakAScrape(t *testing.T) {
	for _, name := range hostile {
		gather(t, stuck(cycle(name, name, now), cycle(name, name, now), cycle(name+"\x00", name, now)))
	}
	expect(t, stuck(cycle("a", "b", time.Time{})), "", "unlocker_deadlock_since_timestamp_seconds") // nobody knows
}

func TestWaitersForSharesCountForTheWholeLock(t *testing.T) {
	share := lock("pool#2", -time.Minute)
	share.Attributes = map[string]any{metadata.AttributeKind: metadata.KindSemaphore}
	w := newWorld(share, lock("build#7", -time.Minute))
	w.queues = map[string][]metadata.Waiter{"pool": {{}, {}}, "build": {{}}}
	expect(t, lockmetrics.New(w.config()), `
unlocker_lock_waiters{lock="build#7"} 0
unlocker_lock_waiters{lock="pool#2"} 2
`)
}
