package cli

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/clustermutex/unlocker/internal/diagnosis/deadlock"
	"github.com/clustermutex/unlocker/internal/diagnosis/fate"
	"github.com/clustermutex/unlocker/internal/diagnosis/verdict"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// cluster is what is known of the locks. Who looks once does not know for how long one has been free.
func (all *snapshot) cluster(cycles []deadlock.Cycle, now time.Time) verdict.Cluster {
	c := verdict.Cluster{Now: now, Running: all.unlockers, Fate: all.fate, Held: len(all.locks), Cycles: cycles,
		Alarm: strings.Join(all.alarms, "; "), Ranking: all.ranking(now)}
	for _, queue := range all.waiters {
		c.Waiting += len(queue)
	}
	return c
}

// selected is what there is of the locks that match.
func (all *snapshot) selected(g globs) *snapshot {
	matching := func(records []*metadata.Record) []*metadata.Record {
		return slices.DeleteFunc(slices.Clone(records), func(r *metadata.Record) bool { return !g.match(r.Name) })
	}
	some := *all
	some.locks = matching(all.locks)
	some.misplaced = matching(all.misplaced)
	some.waiters = maps.Clone(all.waiters)
	maps.DeleteFunc(some.waiters, func(lock string, _ []metadata.Waiter) bool { return !g.match(lock) })
	return &some
}

func (all *snapshot) ranking(now time.Time) *verdict.Ranking {
	r := &verdict.Ranking{}
	holders := map[string][]verdict.Lock{}
	for _, record := range slices.Concat(all.locks, all.misplaced) {
		holders[record.Queue()] = append(holders[record.Queue()], heldLock(record, &all.fate, now))
	}
	for _, name := range slices.Sorted(maps.Keys(holders)) {
		r.Add(verdict.Whole(name, holders[name], verdict.QueueOf(all.waiters[name], now)))
	}
	return r
}

// heldLock is a lock as a record alone describes it.
func heldLock(r *metadata.Record, f *fate.Fate, now time.Time) verdict.Lock {
	judged := judgeBy(f.Policy, r, now)
	return verdict.Lock{Name: r.Name, Class: verdict.ClassOf(r, judged, f, now), Holder: r, Judged: judged,
		Looked: r.AcknowledgedAt(now)}
}

// sayVerdict writes what a person must know first above a table, and what to do. It goes to stderr, so that the table
// can be piped.
func (all *snapshot) sayVerdict(a *app, now time.Time) {
	v := verdict.Of(all.cluster(deadlock.Find(all.locks, all.waiters), now))
	fmt.Fprintln(a.Stderr, v.String(now))
	if command := v.Command(); command != "" {
		fmt.Fprintln(a.Stderr, "next: "+command)
	}
}

// verdict is what a person must know first of one lock; ok is false where nobody holds it.
func (l *look) verdict() (v verdict.Verdict, ok bool) {
	var held []verdict.Lock
	if len(l.Whole.Fields) > 0 {
		held = append(held, heldLock(&l.Whole.Record, &l.fate, l.now))
	}
	for _, r := range l.holders() {
		held = append(held, heldLock(r, &l.fate, l.now))
	}
	if held == nil {
		return verdict.Verdict{}, false
	}
	whole := verdict.Whole(l.Whole.Name, held, verdict.QueueOf(l.Waiters, l.now))
	return verdict.OfLock(verdict.Cluster{Now: l.now, Fate: l.fate, Cycles: l.cycles}, l.Whole.Name, &whole)
}
