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

// waiters exports totals of the queues.
func (c *Collector) waiters(ch chan<- prometheus.Metric, queues map[string][]metadata.Waiter) {
	total := 0
	longest := time.Time{}
	for _, queue := range queues {
		total += len(queue)
		for i := range queue {
			longest = protocol.Earlier(longest, queue[i].Since.Time)
		}
	}
	gauge(ch, c.d.waiters, float64(total))
	instant(ch, c.d.longestWaiter, longest)
}

// locks counts the states and exports the most urgent locks.
func (c *Collector) locks(ch chan<- prometheus.Metric, s *locks.Snapshot, now time.Time) {
	states := staleness.States()
	counts := make([]int, len(states))
	var clockOff, ended []*locks.Row // ended: the holder is proven to have ended
	disputed := 0
	rows, urgent := s.ByUrgency()
	rows = slices.DeleteFunc(slices.Clone(rows), func(r *locks.Row) bool { return r.Leased != nil })
	for _, r := range rows {
		verdict := r.Verdict()
		counts[slices.Index(states, verdict.State)]++
		if r.Disputed() {
			disputed++
		}
		if r.ProvenDead() {
			ended = append(ended, r)
		}
		if verdict.ClockOff != 0 {
			clockOff = append(clockOff, r)
		}
	}
	for i, state := range states {
		gauge(ch, c.d.locks, float64(counts[i]), string(state))
	}
	instant(ch, c.d.oldest, s.All.Oldest)
	if c.c.Series.names() {
		c.ranks(ch, c.first(rows[:urgent]))
		c.clocks(ch, c.first(clockOff))
		c.ended(ch, c.first(ended))
	}
	wanted := rows[:c.c.Series.wanted(len(rows), urgent)]
	shown := c.series(ch, c.first(wanted), s.Combined.Policy, now)
	gauge(ch, c.d.dropped, float64(len(wanted)-shown))
	gauge(ch, c.d.disputed, float64(disputed))
}

// first returns as many of the rows as have series of their own.
func (c *Collector) first(rows []*locks.Row) []*locks.Row {
	return rows[:min(len(rows), c.c.SeriesLimit)]
}

// ranks exports the places of the locks that are not on time.
func (c *Collector) ranks(ch chan<- prometheus.Metric, rows []*locks.Row) {
	for i, r := range unlike(rows, label) {
		gauge(ch, c.d.lockRank, float64(i+1), label(r))
	}
}

// clocks exports how far holders' clocks are off.
func (c *Collector) clocks(ch chan<- prometheus.Metric, rows []*locks.Row) {
	for _, r := range unlike(rows, label) {
		gauge(ch, c.d.clockOffset, r.Verdict().ClockOff.Seconds(), c.holder(r.Record)...)
	}
}

func label(r *locks.Row) string { return text.NameLabel(r.Name) }

// unlike keeps the first of those with the same labels: a duplicate series, by accident or to hide one, would fail the
// whole scrape.
func unlike[T any, L comparable](all []T, labels func(T) L) (kept []T) {
	taken := make(map[L]bool, len(all))
	for _, one := range all {
		if key := labels(one); !taken[key] {
			taken[key] = true
			kept = append(kept, one)
		}
	}
	return kept
}

// holder returns the values of the labels of a lock and its holder; more follow those of the holder.
func (c *Collector) holder(r *metadata.Record, more ...string) []string {
	return slices.Concat([]string{text.NameLabel(r.Name), text.Label(r.Owner), text.Label(r.Hostname)}, more,
		text.AttributeLabels(c.c.Attributes, r.Attributes))
}

// series exports each lock and returns how many it exported.
func (c *Collector) series(ch chan<- prometheus.Metric, rows []*locks.Row, policy staleness.Policy,
	now time.Time) int {
	// The registry sorts the samples, which is quick if they are sorted already.
	slices.SortFunc(rows, func(a, b *locks.Row) int { return strings.Compare(a.Name, b.Name) })
	rows = unlike(rows, label)
	for _, r := range rows {
		name := label(r)
		verdict := r.Verdict()
		gauge(ch, c.d.lockState, 1, c.holder(r.Record, string(verdict.State))...)
		instant(ch, c.d.lockedAt, r.LockedAt, c.holder(r.Record)...)
		instant(ch, c.d.alertAt, verdict.AlertAt, c.holder(r.Record)...)
		instant(ch, c.d.autoUnlockAt, r.UnlockAt(), c.holder(r.Record)...)
		excluded := c.c.Excluded != nil && c.c.Excluded(r.Name)
		if c.c.Removes && !excluded {
			instant(ch, c.d.removedBy, verdict.RemovedBy(policy), name)
		}
		if staleness.KeptAlive(r.Record) {
			instant(ch, c.d.aliveAt, r.DeadlinesWrittenAt(), name)
		}
		if excluded {
			gauge(ch, c.d.lockExcluded, 1, name)
		}
		if r.Purpose != "" {
			gauge(ch, c.d.lockInfo, 1, name, text.Label(r.Purpose))
		}
		if a := r.ValidAcknowledgement(now); a != nil {
			instant(ch, c.d.acknowledgedUntil, a.Until.Time, name)
		}
		gauge(ch, c.d.lockWaiters, float64(r.Waiters), name)
	}
	return len(rows)
}

// unclaimed exports the free locks that no waiter takes.
func (c *Collector) unclaimed(ch chan<- prometheus.Metric, found []diagnosis.Unclaimed) {
	gauge(ch, c.d.unclaimed, float64(len(found)))
	if !c.c.Series.names() {
		return
	}
	label := func(l diagnosis.Unclaimed) string { return text.NameLabel(l.Name) }
	for _, l := range unlike(found[:min(len(found), c.c.SeriesLimit)], label) {
		instant(ch, c.d.unclaimedSince, l.Since, label(l), text.Label(l.First.Owner), text.Label(l.First.Hostname))
	}
}

// maxDeadlocks is how many cycles have series of their own, oldest first. All are counted.
const maxDeadlocks = 20

// deadlocks exports the cycles of processes that wait for each other.
func (c *Collector) deadlocks(ch chan<- prometheus.Metric, cycles []deadlock.Cycle) {
	gauge(ch, c.d.deadlocks, float64(len(cycles)))
	labels := func(c deadlock.Cycle) [2]string {
		locks, holders := c.Labels()
		return [2]string{locks, holders}
	}
	for _, cycle := range unlike(cycles[:min(len(cycles), maxDeadlocks)], labels) {
		locks, holders := cycle.Labels()
		instant(ch, c.d.deadlockSince, cycle.Since, locks, holders)
	}
}

func holdBuckets() []float64 {
	return []float64{.1, 1, 5, 15, 60, 300, 900, 3600, 4 * 3600, 24 * 3600, 7 * 24 * 3600}
}

func newHoldSeconds(register promauto.Factory) *prometheus.HistogramVec {
	held := register.NewHistogramVec(prometheus.HistogramOpts{
		Namespace: namespace,
		Name:      "hold_seconds",
		Help:      "How long locks were held, by how the hold ended.",
		Buckets:   holdBuckets(),
	}, []string{"ended"})
	for _, words := range metadata.Endings() {
		held.WithLabelValues(words.Word)
	}
	return held
}

// Taken records that a waiter got a lock. The view calls it.
func (c *Collector) Taken(r *metadata.Record, w metadata.Waiter) { c.byLock.taken(r, w) }

// Ended records the end of a hold; ending is nil if its holder released it. The view calls it.
func (c *Collector) Ended(r *metadata.Record, ending *metadata.Ending) {
	now := staleness.Moment{Wall: c.c.Now(), Mono: c.c.Clock()}
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

// ended exports when holders ended.
func (c *Collector) ended(ch chan<- prometheus.Metric, rows []*locks.Row) {
	for _, r := range unlike(rows, label) {
		at := cmp.Or(r.Death.EndedAt.Time, r.Death.At.Time, r.Verdict().AbandonedAt)
		instant(ch, c.d.holderEnded, at, c.holder(r.Record, r.Death.Cause)...)
	}
}
