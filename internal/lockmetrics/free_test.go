package lockmetrics_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/diagnosis"
	"github.com/clustermutex/unlocker/internal/lockmetrics"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// nobodyTakes is a collector with these free locks.
func nobodyTakes(series lockmetrics.Series, free ...diagnosis.Unclaimed) *lockmetrics.Collector {
	w := newWorld()
	w.unclaimed = free
	config := w.config()
	config.Series = series
	config.SeriesLimit = 3
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
	if series := families["unlocker_lock_unclaimed_since_timestamp_seconds"].GetMetric(); len(series) != 3 {
		t.Errorf("%d have series, want 3", len(series))
	}
}

// deadlock adds two processes that wait for each other's locks.
func (w *world) deadlock(one, other string, since time.Time) {
	billing := metadata.Identity{Owner: "billing", Hostname: "host-1", PID: int64(len(w.locks) + 7)}
	search := metadata.Identity{Owner: "search", Hostname: "host-2", PID: int64(len(w.locks) + 8)}
	for name, who := range map[string]metadata.Identity{one: billing, other: search} {
		r := lock(name, time.Hour)
		r.Identity = who
		w.locks = append(w.locks, r)
	}
	w.waits(other, billing, since)
	w.waits(one, search, since)
}

func (w *world) waits(lock string, who metadata.Identity, since time.Time) {
	if w.queues == nil {
		w.queues = map[string][]metadata.Waiter{}
	}
	w.queues[lock] = append(w.queues[lock], metadata.Waiter{Name: lock, Revision: int64(len(w.queues) + 1),
		Ticket: metadata.Ticket{Identity: who, Since: metadata.Time{Time: since}}})
}

func (w *world) collector() *lockmetrics.Collector {
	slices.SortFunc(w.locks, func(a, b *metadata.Record) int { return strings.Compare(a.Name, b.Name) })
	return lockmetrics.New(w.config())
}

func TestDeadlockedProcessesAreCountedAndNamed(t *testing.T) {
	w := newWorld()
	w.deadlock("stock", "orders", now.Add(-time.Minute))
	expect(t, w.collector(), `
unlocker_deadlock_since_timestamp_seconds{holders="billing on host-1:7, search on host-2:8",locks="orders, stock"} 1.69999994e+09
unlocker_deadlocks 1
`)
	expect(t, newWorld().collector(), `
unlocker_deadlocks 0
`, "unlocker_deadlock_since_timestamp_seconds")
}

func TestAllCyclesAreCountedAndTheOldestOnesHaveSeries(t *testing.T) {
	w := newWorld()
	for i := range 50 {
		w.deadlock(fmt.Sprintf("stock-%02d", i), fmt.Sprintf("orders-%02d", i), now.Add(time.Duration(i)*time.Second))
	}
	families := gather(t, w.collector())
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
	w := newWorld()
	for _, name := range hostile {
		w.deadlock(name+"\x00", name+"\x01", now)
		w.deadlock(name+"\x02", name+"\x03", now)
	}
	gather(t, w.collector())
	w = newWorld()
	w.deadlock("a", "b", time.Time{})
	for _, r := range w.locks {
		r.LockedAt = time.Time{} // so nobody knows since when
	}
	expect(t, w.collector(), "", "unlocker_deadlock_since_timestamp_seconds")
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
