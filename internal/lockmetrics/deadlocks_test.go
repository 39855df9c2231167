package lockmetrics_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/clustermutex/unlocker/internal/diagnosis/deadlock"
	"github.com/clustermutex/unlocker/internal/lockmetrics"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

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

func TestProcessesThatWaitForEachOtherAreCountedAndNamed(t *testing.T) {
	expect(t, stuck(cycle("stock", "orders", now.Add(-time.Minute))), `
# HELP unlocker_deadlock_since_timestamp_seconds When the deadlock was complete: the latest wait or hold in the cycle, by the processes' clocks.
# TYPE unlocker_deadlock_since_timestamp_seconds gauge
unlocker_deadlock_since_timestamp_seconds{holders="billing on host-1:7, search on host-2:8",locks="orders, stock"} 1.69999994e+09
# HELP unlocker_deadlocks Deadlocks: cycles of processes that hold locks and wait for each other's.
# TYPE unlocker_deadlocks gauge
unlocker_deadlocks 1
`, "unlocker_deadlocks", "unlocker_deadlock_since_timestamp_seconds")
	expect(t, stuck(), `
# HELP unlocker_deadlocks Deadlocks: cycles of processes that hold locks and wait for each other's.
# TYPE unlocker_deadlocks gauge
unlocker_deadlocks 0
`, "unlocker_deadlocks", "unlocker_deadlock_since_timestamp_seconds")
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
	if n := testutil.CollectAndCount(stuck(cycle("a", "b", time.Time{})),
		"unlocker_deadlock_since_timestamp_seconds"); n != 0 {
		t.Error("a time is shown although no record has one")
	}
}

func TestWhoWaitsForAShareWaitsForTheWholeLock(t *testing.T) {
	share := lock("pool#2", -time.Minute)
	share.Attributes = map[string]any{metadata.AttributeKind: metadata.HoldsPermits}
	w := newWorld(share, lock("build#7", -time.Minute))
	w.queues = map[string][]metadata.Waiter{"pool": {{}, {}}, "build": {{}}}
	expect(t, lockmetrics.New(w.config()), `
# HELP unlocker_lock_waiters Waiters for the lock.
# TYPE unlocker_lock_waiters gauge
unlocker_lock_waiters{lock="build#7"} 0
unlocker_lock_waiters{lock="pool#2"} 2
`, "unlocker_lock_waiters")
}
