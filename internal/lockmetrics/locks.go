package lockmetrics

import (
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

// waiters exports totals of the queues and returns the queues.
func (c *Collector) waiters(ch chan<- prometheus.Metric) map[string][]metadata.Waiter {
	if c.c.Queues == nil {
		return nil
	}
	queues := c.c.Queues()
	total := 0
	longest := time.Time{}
	for _, queue := range queues {
		total += len(queue)
		for i := range queue {
			longest = earlier(longest, queue[i].Since.Time)
		}
	}
	gauge(ch, c.d.waiters, float64(total))
	instant(ch, c.d.longestWaiter, longest)
	return queues
}

// locks judges every lock that is due soon once, counts the states and exports the most overdue ones.
func (c *Collector) locks(ch chan<- prometheus.Metric, now staleness.Moment, queues map[string][]metadata.Waiter) {
	states := staleness.States()
	counts := make([]int, len(states))
	survey := c.c.Survey(now)
	counts[slices.Index(states, staleness.Held)] = survey.Idle
	acknowledged := 0
	oldest := survey.Oldest
	list := shortlist{limit: c.c.SeriesLimit}
	off := shortlist{limit: c.c.SeriesLimit}
	policy := c.c.Policy()
	said := statements{ended: shortlist{limit: c.c.SeriesLimit}}
	for r := range survey.DueSoon {
		verdict := staleness.Judge(r, policy, now)
		counts[slices.Index(states, verdict.State)]++
		oldest = earlier(oldest, r.LockedAt)
		if c.c.Series.wants(verdict.State) {
			list.offer(judged{r, verdict})
		}
		said.add(judged{r, verdict})
		if r.AcknowledgedAt(now.Wall) != nil {
			acknowledged++
		}
		if verdict.ClockOff != 0 {
			off.offer(judged{r, verdict})
		}
	}
	for i, state := range states {
		gauge(ch, c.d.locks, float64(counts[i]), string(state))
	}
	instant(ch, c.d.oldest, oldest)
	gauge(ch, c.d.acknowledged, float64(acknowledged))
	shown := c.series(ch, list.best(), queues, now.Wall)
	gauge(ch, c.d.dropped, float64(list.offers-shown))
	gauge(ch, c.d.clocksOff, float64(off.offers))
	if c.c.Series.names() {
		c.clocks(ch, off.best())
	}
	c.statements(ch, &said)
}

// clocks exports how far holders' clocks are off.
func (c *Collector) clocks(ch chan<- prometheus.Metric, locks []judged) {
	taken := make(map[string]bool, len(locks))
	for _, j := range locks {
		if name := text.NameLabel(j.record.Name); !taken[name] {
			taken[name] = true
			gauge(ch, c.d.clockOffset, j.verdict.ClockOff.Seconds(), c.holder(j.record)...)
		}
	}
}

// holder returns the values of the labels of a lock and its holder; more follow those of the holder.
func (c *Collector) holder(r *metadata.Record, more ...string) []string {
	return slices.Concat([]string{text.NameLabel(r.Name), text.Label(r.Owner), text.Label(r.Hostname)}, more,
		c.attributes.Values(r.Attributes))
}

// series exports each lock and returns how many it exported. A lock whose label is already taken, by accident or by
// intent to hide it, is left out: a duplicate series would fail the whole scrape.
func (c *Collector) series(ch chan<- prometheus.Metric, locks []judged, queues map[string][]metadata.Waiter,
	now time.Time) int {
	// The registry sorts what it gets, and that is quick if it is sorted.
	slices.SortFunc(locks, func(a, b judged) int { return strings.Compare(a.record.Name, b.record.Name) })
	taken := make(map[string]bool, len(locks))
	for _, j := range locks {
		r := j.record
		name := text.NameLabel(j.record.Name)
		if taken[name] {
			continue
		}
		taken[name] = true
		gauge(ch, c.d.lockState, 1, c.holder(r, string(j.verdict.State))...)
		holder := prometheus.MakeLabelPairs(c.d.lockedAt, c.holder(r))
		for _, s := range [...]sample{
			{c.d.lockedAt, holder, r.LockedAt},
			{c.d.alertAt, holder, j.verdict.AlertAt},
			{c.d.autoUnlockAt, holder, j.verdict.AutoUnlockAt},
		} {
			if !s.at.IsZero() {
				ch <- s
			}
		}
		if staleness.KeptAlive(r) {
			instant(ch, c.d.aliveAt, r.Written(), name)
		}
		if c.c.Excluded != nil && c.c.Excluded(r.Name) {
			gauge(ch, c.d.lockExcluded, 1, name)
		}
		if r.Purpose != "" {
			gauge(ch, c.d.lockInfo, 1, name, text.Label(r.Purpose))
		}
		if a := r.AcknowledgedAt(now); a != nil {
			instant(ch, c.d.acknowledgedUntil, a.Until.Time, name)
		}
		if queues != nil {
			gauge(ch, c.d.lockWaiters, float64(len(queues[r.Queue()])), name)
		}
	}
	return len(taken)
}

// sample is an instant of a lock. Those of one lock share their labels.
type sample struct {
	desc   *prometheus.Desc
	labels []*dto.LabelPair
	at     time.Time
}

// Desc implements [prometheus.Metric].
func (s sample) Desc() *prometheus.Desc { return s.desc }

// Write implements [prometheus.Metric].
func (s sample) Write(m *dto.Metric) error {
	value := seconds(s.at)
	m.Label = s.labels
	m.Gauge = &dto.Gauge{Value: &value}
	return nil
}

// earlier returns the earlier of two times, where zero means none.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
