package cli

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/clustermutex/unlocker/internal/diagnosis"
	"github.com/clustermutex/unlocker/internal/diagnosis/deadlock"
	"github.com/clustermutex/unlocker/internal/diagnosis/verdict"
	"github.com/clustermutex/unlocker/internal/locks"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

// cluster returns the input for a verdict about all locks. Unclaimed locks are missing: a single snapshot does not show
// for how long a lock has been free.
func (all *snapshot) cluster(cycles []deadlock.Cycle, now time.Time) verdict.Cluster {
	c := verdict.Cluster{Now: now, Running: all.unlockers, Combined: all.combined, Held: len(all.locks), Cycles: cycles,
		Alarm: strings.Join(all.alarms, "; ")}
	c.Ranking = all.model(now).Ranking()
	for _, queue := range all.waiters {
		c.Waiting += len(queue)
	}
	return c
}

// selection is what a query finds in a snapshot.
type selection struct {
	*snapshot
	rows         []*locks.Row
	inconsistent []diagnosis.Inconsistent
	cycles       []deadlock.Cycle
}

// selected returns what the query finds. The error says that the search was stopped.
func (all *snapshot) selected(ctx context.Context, q *locks.Query, now time.Time) (*selection, error) {
	model := all.model(now)
	found, err := model.Result(ctx, q, locks.Order{By: "name"}, now)
	if err != nil {
		return nil, err
	}
	some := *all
	some.locks, some.misplaced = nil, nil
	for _, row := range found.Rows {
		if row.Misplaced {
			some.misplaced = append(some.misplaced, row.Record)
		} else {
			some.locks = append(some.locks, row.Record)
		}
	}
	finds := func(lock string) bool { return model.Finds(q, lock, now) }
	some.waiters = maps.Clone(all.waiters)
	maps.DeleteFunc(some.waiters, func(lock string, _ []metadata.Waiter) bool { return !finds(lock) })
	return &selection{&some, found.Rows,
		slices.DeleteFunc(all.inconsistent(), func(l diagnosis.Inconsistent) bool { return !finds(l.Name) }),
		slices.DeleteFunc(deadlock.Find(all.locks, all.waiters), func(c deadlock.Cycle) bool {
			return !slices.ContainsFunc(c.Locks(), finds)
		})}, nil
}

// inconsistent returns the locks in a state that no client leaves behind.
func (all *snapshot) inconsistent() []diagnosis.Inconsistent {
	held := func(yield func(string, map[string]any) bool) {
		for _, r := range all.locks {
			if r.Token != 0 && !yield(r.Name, r.Attributes) {
				return
			}
		}
	}
	return diagnosis.FindInconsistent(held, all.delays)
}

// printVerdict prints the verdict and the command to run next, to stderr so that the table on stdout can be piped.
func (all *snapshot) printVerdict(a *app, now time.Time) {
	v := verdict.Of(all.cluster(deadlock.Find(all.locks, all.waiters), now))
	fmt.Fprintln(a.Stderr, v.String(now))
	if command := v.Command(); command != "" {
		fmt.Fprintln(a.Stderr, "next: "+command)
	}
}

// verdict returns the verdict about one lock; ok is false if nobody holds it.
func (l *lockInfo) verdict() (v verdict.Verdict, ok bool) {
	holders := l.holders()
	if len(holders) == 0 {
		return verdict.Verdict{}, false
	}
	whole := locks.Whole(l.Record.Name, holders, *holders[0].Queue)
	return verdict.OfLock(verdict.Cluster{Now: l.now, Combined: l.combined, Cycles: l.cycles}, l.Record.Name, &whole)
}

// model returns the read model of all locks.
func (all *snapshot) model(now time.Time) *locks.Snapshot {
	return all.judged(slices.Concat(all.locks, all.misplaced), all.combined.Policy, now)
}

// judged returns the read model of these records, judged by a policy.
func (all *snapshot) judged(records []*metadata.Record, p staleness.Policy, now time.Time) *locks.Snapshot {
	f := all.combined
	f.Policy = p
	return judged(records, all.waiters, f, now)
}

func judged(records []*metadata.Record, queues map[string][]metadata.Waiter, f diagnosis.CombinedPolicy,
	now time.Time) *locks.Snapshot {
	seen := make([]*metadata.Record, len(records))
	for i, r := range records {
		seen[i] = asSeen(r, now)
	}
	byName(seen)
	f.Policy = withoutDefaults(f.Policy)
	return locks.Build(locks.Input{Locks: seen, Queues: queues, Combined: f}, staleness.Moment{Wall: now})
}
