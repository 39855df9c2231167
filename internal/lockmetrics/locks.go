package lockmetrics

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/clustermutex/unlocker/internal/diagnosis"
	"github.com/clustermutex/unlocker/internal/diagnosis/deadlock"
	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/locks"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

func (c *Collector) waiters(to scrape, queues map[string][]metadata.Waiter) {
	total := 0
	longest := time.Time{}
	for _, queue := range queues {
		total += len(queue)
		for i := range queue {
			longest = protocol.Earlier(longest, queue[i].Since.Time)
		}
	}
	to.gauge("waiters", "Waiters, over all locks.")(float64(total))
	to.gauge("longest_waiter_timestamp_seconds",
		"When the waiter that has waited longest began to wait, by its clock.").at(longest)
}

// locks counts the states and exports the most urgent locks.
func (c *Collector) locks(to scrape, s *locks.Snapshot, now time.Time) {
	states := staleness.States()
	counts := make([]int, len(states))
	var clockOff, ended []*locks.Row // ended: the holder is proven to have ended
	disputed := 0
	rows, urgent := s.ByUrgency()
	for _, r := range rows {
		counts[slices.Index(states, r.State)]++
		if r.Disputed() {
			disputed++
		}
		if r.ProvenDead() {
			ended = append(ended, r)
		}
		if r.ClockOff != 0 {
			clockOff = append(clockOff, r)
		}
	}
	inState := to.gauge("locks", "Held locks by state.", "state")
	for i, state := range states {
		inState(float64(counts[i]), string(state))
	}
	to.gauge("oldest_lock_timestamp_seconds", "When the lock held longest was taken, by its holder's clock.").
		at(s.Totals.Oldest)
	c.ranks(to, c.withSeries(rows[:urgent]))
	c.clocks(to, c.withSeries(clockOff))
	c.ended(to, c.withSeries(ended))
	wanted := rows[:c.config.Series.wanted(len(rows), urgent)]
	shown := c.withSeries(wanted)
	c.series(to, shown, s.Combined.Policy, now)
	to.gauge("lock_series_dropped", "Locks that have no series of their own because of the limit.")(
		float64(len(wanted) - len(shown)))
	to.gauge("disputed_deaths", "Held locks whose holder reported progress after a witness declared it dead.")(
		float64(disputed))
}

// withSeries returns those of the rows that have series of their own.
func (c *Collector) withSeries(rows []*locks.Row) []*locks.Row {
	return firstOfEachLabels(rows, c.config.SeriesLimit, label)
}

func (c *Collector) ranks(to scrape, rows []*locks.Row) {
	rank := to.gauge("lock_rank",
		"The lock's row in the list of mutexdash, from 1; only of locks that are not on time.", "lock")
	for i, r := range rows {
		rank(float64(i+1), label(r))
	}
}

func (c *Collector) clocks(to scrape, rows []*locks.Row) {
	offset := c.ofHolder(to, "lock_holder_clock_offset_seconds",
		"How far the clock of the lock's holder is ahead of this program's; negative: behind. Only if it is off.")
	for _, r := range rows {
		offset(r.ClockOff.Seconds(), c.holder(r.Record)...)
	}
}

func label(r *locks.Row) string { return text.NameLabel(r.Name) }

// firstOfEachLabels keeps the first ones, up to a limit, without those whose labels another one has: a duplicate
// series, by accident or to hide one, would fail the whole scrape.
func firstOfEachLabels[T any, L comparable](all []T, limit int, labels func(T) L) (kept []T) {
	taken := map[L]bool{}
	for _, one := range all {
		if len(kept) == limit {
			break
		}
		if key := labels(one); !taken[key] {
			taken[key] = true
			kept = append(kept, one)
		}
	}
	return kept
}

// ofHolder returns a gauge with the labels of a lock and its holder; more labels follow those of the holder.
func (c *Collector) ofHolder(to scrape, name, help string, more ...string) metric {
	return to.gauge(name, help, slices.Concat([]string{"lock", "owner", "hostname"}, more, c.config.Attributes)...)
}

// holder returns the values of the labels of a lock and its holder; more follow those of the holder.
func (c *Collector) holder(r *metadata.Record, more ...string) []string {
	return slices.Concat([]string{text.NameLabel(r.Name), text.Label(r.Owner), text.Label(r.Hostname)}, more,
		text.AttributeLabels(c.config.Attributes, r.Attributes))
}

func (c *Collector) series(to scrape, rows []*locks.Row, policy staleness.Policy, now time.Time) {
	// The registry sorts the samples, which is quick if they are sorted already.
	slices.SortFunc(rows, func(a, b *locks.Row) int { return strings.Compare(a.Name, b.Name) })
	state := c.ofHolder(to, "lock_state", "The state that the lock is in; always 1.", "state")
	locked := c.ofHolder(to, "lock_locked_timestamp_seconds", "When the lock was taken, by its holder's clock.")
	alert := c.ofHolder(to, "lock_alert_at_timestamp_seconds", "When the lock starts to alert.")
	autoUnlock := c.ofHolder(to, "lock_auto_unlock_at_timestamp_seconds", "When the lock is due for removal.")
	for _, r := range rows {
		state(1, c.holder(r.Record, string(r.State))...)
		locked.at(r.LockedAt, c.holder(r.Record)...)
		alert.at(r.DueAlert, c.holder(r.Record)...)
		autoUnlock.at(r.DueUnlock(), c.holder(r.Record)...)
	}
	c.byName(to, rows, policy, now)
}

// byName exports what needs no label but the name.
func (c *Collector) byName(to scrape, rows []*locks.Row, policy staleness.Policy, now time.Time) {
	removedBy := to.gauge("lock_removed_by_timestamp_seconds", "When this program has removed the lock at the latest: "+
		"its deadline plus what the rules add. Absent if it never removes the lock.", "lock")
	alive := to.gauge("lock_alive_timestamp_seconds",
		"When the lock's holder last extended it, by its clock; absent if it never did.", "lock")
	excluded := to.gauge("lock_excluded", "The lock is never auto-unlocked, by its name (--sweep.exclude); always 1.",
		"lock")
	info := to.gauge("lock_info", "What the lock was taken for, in its holder's words; always 1.", "lock", "purpose")
	acknowledged := to.gauge("lock_acknowledged_until_timestamp_seconds", "When the acknowledgement of the lock ends.",
		"lock")
	waiters := to.gauge("lock_waiters", "Waiters for the lock.", "lock")
	for _, r := range rows {
		name := label(r)
		if staleness.KeptAlive(r.Record) {
			alive.at(r.DeadlinesWrittenAt(), name)
		}
		isExcluded := c.config.Excluded != nil && c.config.Excluded(r.Name)
		if c.config.Removes && !isExcluded {
			removedBy.at(r.RemovedBy(policy), name)
		}
		if isExcluded {
			excluded(1, name)
		}
		if r.Purpose != "" {
			info(1, name, text.Label(r.Purpose))
		}
		if a := r.ValidAcknowledgement(now); a != nil {
			acknowledged.at(a.Until.Time, name)
		}
		waiters(float64(r.Waiters), name)
	}
}

func (c *Collector) unclaimed(to scrape, found []diagnosis.Unclaimed) {
	to.gauge("unclaimed_locks", "Free locks that no waiter takes.")(float64(len(found)))
	since := to.gauge("lock_unclaimed_since_timestamp_seconds", "When this program saw the lock become free that "+
		"nobody takes; owner and hostname are of the first in line.", "lock", "owner", "hostname")
	label := func(l diagnosis.Unclaimed) string { return text.NameLabel(l.Name) }
	for _, l := range firstOfEachLabels(found, c.config.SeriesLimit, label) {
		since.at(l.Since, label(l), text.Label(l.First.Owner), text.Label(l.First.Hostname))
	}
}

// leased exports how many locks other libraries hold, and those that have been held for long.
func (c *Collector) leased(to scrape, rows []*locks.Row, now time.Time) {
	to.gauge("leased_locks", "Locks of other libraries, below the prefixes of --etcd-locks.")(float64(len(rows)))
	since := to.gauge("leased_lock_held_since_timestamp_seconds", "Since when a lock of another library has been "+
		"held, or when it was first seen, if longer ago than --etcd-locks.alert-after; owner is the value of its key.",
		"lock", "owner")
	long := slices.DeleteFunc(slices.Clone(rows), func(r *locks.Row) bool {
		return c.config.LeasedAlertAfter <= 0 || now.Sub(r.SeenAt) < c.config.LeasedAlertAfter
	})
	for _, r := range c.withSeries(long) {
		since.at(r.SeenAt, label(r), text.Label(r.Owner))
	}
}

// maxDeadlocks is how many cycles have series of their own, oldest first. All are counted.
const maxDeadlocks = 20

func (c *Collector) deadlocks(to scrape, cycles []deadlock.Cycle) {
	to.gauge("deadlocks", "Deadlocks: cycles of processes that hold locks and wait for each other's.")(
		float64(len(cycles)))
	since := to.gauge("deadlock_since_timestamp_seconds",
		"When the deadlock was complete: the latest wait or hold in the cycle, by the processes' clocks.",
		"locks", "holders")
	for _, cycle := range firstOfEachLabels(cycles, maxDeadlocks, deadlock.Cycle.Labels) {
		labels := cycle.Labels()
		since.at(cycle.Since, labels[:]...)
	}
}

// histogram measures lengths of holds or waits.
func histogram(register promauto.Factory, name, help, label string) *prometheus.HistogramVec {
	return register.NewHistogramVec(prometheus.HistogramOpts{Namespace: namespace, Name: name, Help: help,
		Buckets: []float64{.1, 1, 5, 15, 60, 300, 900, 3600, 4 * 3600, 24 * 3600, 7 * 24 * 3600}}, []string{label})
}

// Acquired records that a waiter got a lock. The view calls it.
func (c *Collector) Acquired(r *metadata.Record, w metadata.Waiter) { c.byLock.acquired(r, w) }

// Ended records the end of a hold; ending is nil if its holder released it. The view calls it.
func (c *Collector) Ended(r *metadata.Record, ending *metadata.Ending) {
	now := staleness.Moment{Wall: c.config.Now(), Mono: c.config.Clock()}
	ended, after := endOf(r, ending), lasted(r, now)
	c.held.WithLabelValues(ended.Word).Observe(after.Seconds())
	if ended.Cause == metadata.EndingReleased || ended.Cause == metadata.EndingYielded {
		c.byLock.ended(r, after)
	}
}

// endOf returns how the hold ended. An unreadable ending was written by an operator's tool.
func endOf(r *metadata.Record, ending *metadata.Ending) metadata.EndingWords {
	if ending == nil {
		ending = new(lockrecord.ReleaseEnding(r, time.Time{}))
	}
	words, known := metadata.EndingWordsFor(ending.Cause)
	if !known {
		words, _ = metadata.EndingWordsFor(metadata.EndingForced)
	}
	return words
}

// lasted returns how long r was held: since its holder took it or, if that time is missing or in the future, since it
// was first seen.
func lasted(r *metadata.Record, now staleness.Moment) time.Duration {
	if d := now.Wall.Sub(r.LockedAt); !r.LockedAt.IsZero() && d >= 0 {
		return d
	}
	return max(0, now.Mono-r.Seen.First)
}

func (c *Collector) ended(to scrape, rows []*locks.Row) {
	endedAt := c.ofHolder(to, "lock_holder_ended_timestamp_seconds",
		"When the holder of an abandoned lock ended, by the witness's clock.", "cause")
	for _, r := range rows {
		at := cmp.Or(r.Death.EndedAt.Time, r.Death.At.Time, r.AbandonedAt)
		endedAt.at(at, c.holder(r.Record, r.Death.Cause)...)
	}
}
