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

// maxUnlocked bounds the series about removals of single locks; the newest are kept.
const maxUnlocked = 1000

// removalShown is how long the removal of a lock stays in the metrics.
const removalShown = time.Hour

// metrics holds what the sweep itself counts. Package lockmetrics exports the locks and their states.
type metrics struct {
	alerting prometheus.Counter
	lag      prometheus.Histogram
	counted  *prometheus.Registry // all that is not computed at a scrape
	removals struct{ success, conflict, failed, skipped prometheus.Counter }
	removes  struct{ deadline, abandoned prometheus.Counter }

	heldBack, offset, tolerance, jumps, lastUnlock *prometheus.Desc

	attributes []string

	mu       sync.Mutex
	unlocked map[lockLabels]removal
}

// lockLabels identify a removed lock. They have no uuid, which would make every removal a separate series.
type lockLabels struct {
	lock, owner, hostname string
	attributes            string // the values of the labels from attributes, each after a zero byte
}

// removal is the last removal under the same labels. Its purpose is not part of the key, or every hold could make a
// separate series.
type removal struct {
	at      time.Time
	purpose string
}

func newMetrics(attributes []string) *metrics {
	m := &metrics{unlocked: map[lockLabels]removal{}, attributes: attributes, counted: prometheus.NewRegistry()}
	register := promauto.With(m.counted)
	m.alerting = register.NewCounter(prometheus.CounterOpts{
		Name: "unlocker_alerting_locks_total", Help: "Locks that started to alert.",
	})
	m.lag = register.NewHistogram(prometheus.HistogramOpts{
		Name:    "unlocker_removal_lag_seconds",
		Help:    "Time from when all rules allowed a removal until it was confirmed.",
		Buckets: []float64{.002, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300},
	})
	results := register.NewCounterVec(prometheus.CounterOpts{
		Name: "unlocker_removals_total", Help: "Removals of stale locks, by result.",
	}, []string{"result"})
	reasons := register.NewCounterVec(prometheus.CounterOpts{
		Name: "unlocker_removed_locks_total",
		Help: "Locks removed, by reason: past their deadline, or abandoned by a holder that is proven to have ended.",
	}, []string{"reason"})
	m.heldBack = prometheus.NewDesc("unlocker_removal_held_back",
		"Locks that are due but not removed, by the rule that holds them back.", []string{"reason"}, nil)
	m.offset = prometheus.NewDesc("unlocker_clock_offset_seconds",
		"Own wall clock minus the median of the other unlockers' and etcd members' clocks; "+
			"absent while there is none to compare with.", nil, nil)
	m.tolerance = prometheus.NewDesc("unlocker_clock_tolerance_seconds",
		"Offset above which the own wall clock counts as wrong, and nothing is removed.", nil, nil)
	m.jumps = prometheus.NewDesc("unlocker_clock_jumps_total",
		"Jumps of the own wall clock relative to the monotonic clock.", nil, nil)
	m.lastUnlock = prometheus.NewDesc("unlocker_lock_last_auto_unlock_timestamp_seconds",
		"When this unlocker last removed a lock of this name; kept for an hour.",
		append([]string{"lock", "owner", "hostname", "purpose"}, attributes...), nil)
	m.removals.success = results.WithLabelValues("success")
	m.removals.conflict = results.WithLabelValues("conflict")
	m.removals.failed = results.WithLabelValues("error")
	m.removals.skipped = results.WithLabelValues("skipped")
	m.removes.deadline = reasons.WithLabelValues("deadline")
	m.removes.abandoned = reasons.WithLabelValues("abandoned")
	return m
}

// removed counts a removal; proof means that the holder was proven to have ended.
func (m *metrics) removed(r *metadata.Record, proof bool, at time.Time, lag time.Duration) {
	m.removals.success.Inc()
	if proof {
		m.removes.abandoned.Inc()
	} else {
		m.removes.deadline.Inc()
	}
	m.lag.Observe(max(0, lag).Seconds())
	m.mu.Lock()
	defer m.mu.Unlock()
	labels := lockLabels{lock: text.NameLabel(r.Name), owner: text.Label(r.Owner), hostname: text.Label(r.Hostname)}
	for _, value := range text.AttributeLabels(m.attributes, r.Attributes) {
		labels.attributes += "\x00" + value // which no value has
	}
	m.unlocked[labels] = removal{at, text.Label(r.Purpose)}
	if len(m.unlocked) > 2*maxUnlocked {
		m.forget(maxUnlocked)
	}
}

// forget keeps only the newest removals, at most most of them.
func (m *metrics) forget(most int) {
	times := make([]time.Time, 0, len(m.unlocked))
	for _, last := range m.unlocked {
		times = append(times, last.at)
	}
	if len(times) <= most {
		return
	}
	slices.SortFunc(times, func(a, b time.Time) int { return b.Compare(a) })
	for labels, last := range m.unlocked {
		if last.at.Before(times[most-1]) {
			delete(m.unlocked, labels)
		}
	}
}

// Describe implements [prometheus.Collector].
func (s *Sweeper) Describe(ch chan<- *prometheus.Desc) {
	m := s.metrics
	for _, desc := range []*prometheus.Desc{m.heldBack, m.offset, m.tolerance, m.jumps, m.lastUnlock} {
		ch <- desc
	}
	m.counted.Describe(ch)
}

// Collect implements [prometheus.Collector].
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
	ch <- prometheus.MustNewConstMetric(m.tolerance, prometheus.GaugeValue, tolerance(s.cfg.Policy.ClockSkew).Seconds())
	ch <- prometheus.MustNewConstMetric(m.jumps, prometheus.CounterValue, float64(status.ClockJumps))
	now := s.cfg.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.forget(maxUnlocked)
	for labels, last := range m.unlocked {
		if now.Sub(last.at) > removalShown {
			delete(m.unlocked, labels)
			continue
		}
		values := append([]string{labels.lock, labels.owner, labels.hostname, last.purpose},
			strings.Split(labels.attributes, "\x00")[1:]...)
		ch <- prometheus.MustNewConstMetric(m.lastUnlock, prometheus.GaugeValue, float64(last.at.UnixMilli())/1000,
			values...)
	}
}

var _ prometheus.Collector = (*Sweeper)(nil)
