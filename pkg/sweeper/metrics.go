package sweeper

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

// maxRemovalSeries bounds the series about removals of single locks; the newest are kept.
const maxRemovalSeries = 1000

// removalShownFor is how long the removal of a lock stays in the metrics.
const removalShownFor = time.Hour

// metrics holds what the sweep itself counts. Package lockmetrics exports the locks and their states.
type metrics struct {
	alerting prometheus.Counter
	lag      prometheus.Histogram
	counted  *prometheus.Registry   // all that is not computed at a scrape
	removals *prometheus.CounterVec // by result
	reasons  *prometheus.CounterVec // of removals

	heldBack, offset, jumps, lastUnlock *prometheus.Desc

	attributes []string

	mu       sync.Mutex
	unlocked map[string]removal // by the values of all labels but the purpose, with zero bytes between
}

// removal is the last removal under the same labels. Neither its purpose nor its uuid is part of the key, or every hold
// could make a separate series.
type removal struct {
	at      time.Time
	purpose string
}

func newMetrics(c *Config) *metrics {
	m := &metrics{unlocked: map[string]removal{}, attributes: c.Attributes, counted: prometheus.NewRegistry()}
	register := promauto.With(m.counted)
	m.alerting = register.NewCounter(prometheus.CounterOpts{
		Name: "unlocker_alerting_locks_total", Help: "Locks that started to alert.",
	})
	m.lag = register.NewHistogram(prometheus.HistogramOpts{
		Name:    "unlocker_removal_lag_seconds",
		Help:    "Time from when all rules allowed a removal until it was confirmed.",
		Buckets: []float64{.002, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300},
	})
	m.removals = register.NewCounterVec(prometheus.CounterOpts{
		Name: "unlocker_removals_total", Help: "Removals of stale locks, by result.",
	}, []string{"result"})
	m.reasons = register.NewCounterVec(prometheus.CounterOpts{
		Name: "unlocker_removed_locks_total",
		Help: "Locks removed, by reason: past their deadline, or abandoned by a holder that is proven to have ended.",
	}, []string{"reason"})
	m.heldBack = prometheus.NewDesc("unlocker_removal_held_back",
		"Locks that are due but not removed, by the rule that forbids it.", []string{"reason"}, nil)
	m.offset = prometheus.NewDesc("unlocker_clock_offset_seconds",
		"Own wall clock minus the median of the other unlockers' and etcd members' clocks; "+
			"absent while there is none to compare with.", nil, nil)
	register.NewGauge(prometheus.GaugeOpts{
		Name: "unlocker_clock_tolerance_seconds",
		Help: "Offset above which the own wall clock counts as wrong, and nothing is removed.",
	}).Set(tolerance(c.Policy.ClockSkew).Seconds())
	m.jumps = prometheus.NewDesc("unlocker_clock_jumps_total",
		"Jumps of the own wall clock relative to the monotonic clock.", nil, nil)
	m.lastUnlock = prometheus.NewDesc("unlocker_lock_last_auto_unlock_timestamp_seconds",
		"When this unlocker last removed a lock of this name; kept for an hour.",
		append([]string{"lock", "owner", "hostname", "purpose"}, c.Attributes...), nil)
	for _, result := range []string{"success", "conflict", "error", "skipped"} {
		m.removals.WithLabelValues(result)
	}
	for _, reason := range []string{"deadline", "abandoned"} {
		m.reasons.WithLabelValues(reason)
	}
	return m
}

// countRemoval counts a removal; proof means that the holder was proven to have ended.
func (m *metrics) countRemoval(r *metadata.Record, proof bool, at time.Time, lag time.Duration) {
	m.removals.WithLabelValues("success").Inc()
	reason := "deadline"
	if proof {
		reason = "abandoned"
	}
	m.reasons.WithLabelValues(reason).Inc()
	m.lag.Observe(max(0, lag).Seconds())
	m.mu.Lock()
	defer m.mu.Unlock()
	values := append([]string{text.NameLabel(r.Name), text.Label(r.Owner), text.Label(r.Hostname)},
		text.AttributeLabels(m.attributes, r.Attributes)...)
	m.unlocked[strings.Join(values, "\x00")] = removal{at, text.Label(r.Purpose)} // no label has a zero byte
	if len(m.unlocked) > 2*maxRemovalSeries {
		m.keepNewest()
	}
}

// keepNewest forgets all but the newest removals.
func (m *metrics) keepNewest() {
	times := make([]time.Time, 0, len(m.unlocked))
	for _, last := range m.unlocked {
		times = append(times, last.at)
	}
	if len(times) <= maxRemovalSeries {
		return
	}
	slices.SortFunc(times, func(a, b time.Time) int { return b.Compare(a) })
	for labels, last := range m.unlocked {
		if last.at.Before(times[maxRemovalSeries-1]) {
			delete(m.unlocked, labels)
		}
	}
}

func (s *Sweeper) Describe(ch chan<- *prometheus.Desc) {
	m := s.metrics
	for _, desc := range []*prometheus.Desc{m.heldBack, m.offset, m.jumps, m.lastUnlock} {
		ch <- desc
	}
	m.counted.Describe(ch)
}

func (s *Sweeper) Collect(ch chan<- prometheus.Metric) {
	m := s.metrics
	m.counted.Collect(ch)
	status := s.Status()
	for rule, locks := range status.HeldBack {
		ch <- prometheus.MustNewConstMetric(m.heldBack, prometheus.GaugeValue, float64(locks), string(rule))
	}
	if status.WallClock != staleness.ClockUnverified {
		ch <- prometheus.MustNewConstMetric(m.offset, prometheus.GaugeValue, status.Offset.Seconds())
	}
	ch <- prometheus.MustNewConstMetric(m.jumps, prometheus.CounterValue, float64(status.ClockJumps))
	now := s.cfg.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.keepNewest()
	for labels, last := range m.unlocked {
		if now.Sub(last.at) > removalShownFor {
			delete(m.unlocked, labels)
			continue
		}
		values := slices.Insert(strings.Split(labels, "\x00"), 3, last.purpose)
		ch <- prometheus.MustNewConstMetric(m.lastUnlock, prometheus.GaugeValue, float64(last.at.UnixMilli())/1000,
			values...)
	}
}

var _ prometheus.Collector = (*Sweeper)(nil)
