package mutexmetrics

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

// OtherGroup is the group of locks beyond [Options.MaxGroups].
const OtherGroup = "other"

// DefaultMaxGroups is the default of [Options.MaxGroups].
const DefaultMaxGroups = 20

// Options change the metrics. The zero Options are usable.
type Options struct {
	// Group returns the label "group" for a lock's name; for a share such as "pool#2" it gets the name "pool". It must
	// be safe for concurrent use. If nil, there is no such label.
	Group func(lock string) string

	// MaxGroups is how many groups get their own series, in order of appearance; locks of later groups are counted in
	// the group [OtherGroup]. [DefaultMaxGroups] if zero.
	MaxGroups int
}

// Metrics is a [prometheus.Collector] that is fed by hooks.
type Metrics struct {
	acquisitions, extensions, lost, releases *prometheus.CounterVec
	waiting, held                            *prometheus.GaugeVec
	wait, hold                               *prometheus.HistogramVec
	asked, givenTime                         *prometheus.CounterVec

	groups groupSet
}

var _ prometheus.Collector = (*Metrics)(nil)

// New returns metrics. Register them and pass their [Metrics.Hooks] to the clients.
func New(o Options) *Metrics {
	var labels []string
	if o.Group != nil {
		labels = []string{"group"}
	}
	m := &Metrics{
		acquisitions: counter("mutex_acquisitions_total", "Attempts to take a lock, by how they ended.", labels,
			"result"),
		extensions: counter("mutex_extensions_total", "Attempts to extend a held lock, by how they ended.", labels,
			"result"),
		lost: counter("mutex_lost_total", "Locks that were lost while they were held, by reason.", labels,
			"reason"),
		releases: counter("mutex_releases_total", "Attempts to release a lock, by how they ended.", labels, "result"),
		waiting:  gauge("mutex_waiting", "Calls that wait for a lock, or for etcd's answer.", labels),
		held:     gauge("mutex_held", "Locks that are held.", labels),
		wait: histogram("mutex_wait_seconds", "Time until a lock was taken or the caller gave up.", labels,
			.001, .0025, .005, .01, .025, .05, .1, .5, 1, 5, 15, 60, 300, 900, 3600),
		hold: histogram("mutex_hold_seconds", "Time from taking a lock until it was released or lost.", labels,
			.01, .05, .1, .5, 1, 5, 15, 60, 300, 900, 3600, 4*3600, 24*3600),
		asked:     counter("mutex_asked_total", "Requests to finish that holders of locks learned of.", labels),
		givenTime: counter("mutex_given_time_total", "Times that the holder of a lock was given more time.", labels),
	}
	m.groups = groupSet{of: o.Group, maxGroups: cmp.Or(max(o.MaxGroups, 0), DefaultMaxGroups), known: map[string]bool{},
		create: m.create}
	if o.Group == nil {
		m.create()
	}
	return m
}

func counter(name, help string, labels []string, more ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help},
		append(slices.Clip(labels), more...))
}

func gauge(name, help string, labels []string) *prometheus.GaugeVec {
	return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
}

func histogram(name, help string, labels []string, buckets ...float64) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
}

func (m *Metrics) create(labels ...string) {
	m.waiting.WithLabelValues(labels...)
	m.held.WithLabelValues(labels...)
	m.wait.WithLabelValues(labels...)
	m.hold.WithLabelValues(labels...)
	m.asked.WithLabelValues(labels...)
	m.givenTime.WithLabelValues(labels...)
	createEach(m.acquisitions, labels, mutex.ResultAcquired, mutex.ResultHeld, mutex.ResultGaveUp,
		mutex.ResultRefused, mutex.ResultError)
	createEach(m.extensions, labels, mutex.ResultExtended, mutex.ResultLost, mutex.ResultError)
	createEach(m.lost, labels, mutex.LostReasonForced, mutex.LostReasonAutoUnlocked, mutex.LostReasonAbandoned,
		mutex.LostReasonRemoved, mutex.LostReasonTime)
	createEach(m.releases, labels, mutex.ResultReleased, mutex.ResultLost, mutex.ResultError)
}

func createEach[W ~string](vec *prometheus.CounterVec, labels []string, words ...W) {
	for _, w := range words {
		vec.WithLabelValues(append(slices.Clip(labels), string(w))...)
	}
}

// Describe implements [prometheus.Collector].
func (m *Metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range m.all() {
		c.Describe(ch)
	}
}

// Collect implements [prometheus.Collector].
func (m *Metrics) Collect(ch chan<- prometheus.Metric) {
	for _, c := range m.all() {
		c.Collect(ch)
	}
}

func (m *Metrics) all() []prometheus.Collector {
	return []prometheus.Collector{m.acquisitions, m.wait, m.waiting, m.held, m.hold, m.extensions, m.lost, m.releases,
		m.asked, m.givenTime}
}

// Hooks returns hooks that feed the metrics. Combine them with others: metrics.Hooks().And(others).
func (m *Metrics) Hooks() mutex.Hooks {
	return mutex.Hooks{
		Acquiring: func(e mutex.Acquiring) {
			incrementUntil(e.Context, m.waiting.WithLabelValues(m.groups.labels(e.Name)...))
		},
		AcquireEnded: m.acquired,
		ExtendEnded:  func(e mutex.ExtendEnded) { m.count(m.extensions, e.Lock.Name(), string(e.Result)) },
		Lost:         func(e mutex.Lost) { m.ended(e.Lock, e.Reason, e.HoldTime) },
		ReleaseEnded: m.released,

		FinishRequested: func(e mutex.FinishRequested) { m.count(m.asked, e.Lock.Name()) },
		MoreTimeGiven:   func(e mutex.MoreTimeGiven) { m.count(m.givenTime, e.Lock.Name()) },
	}
}

// count counts an event of a lock, with the values of further labels.
func (m *Metrics) count(vec *prometheus.CounterVec, name string, more ...string) {
	vec.WithLabelValues(append(m.groups.labels(name), more...)...).Inc()
}

// incrementUntil increments g until ctx ends: hooks do not report every such end.
func incrementUntil(ctx context.Context, g prometheus.Gauge) {
	g.Inc()
	context.AfterFunc(ctx, g.Dec)
}

func (m *Metrics) acquired(e mutex.AcquireEnded) {
	labels := m.groups.labels(e.Name)
	m.count(m.acquisitions, e.Name, string(e.Result))
	if e.Result != mutex.ResultAcquired && e.Result != mutex.ResultGaveUp {
		return
	}
	m.wait.WithLabelValues(labels...).Observe(e.WaitTime.Seconds())
	if e.Lock != nil {
		incrementUntil(e.Lock.Context(), m.held.WithLabelValues(labels...))
	}
}

func (m *Metrics) released(e mutex.ReleaseEnded) {
	m.count(m.releases, e.Lock.Name(), string(e.Result))
	var reason mutex.LostReason
	if lost, isLost := errors.AsType[*mutex.LostError](e.Err); isLost {
		reason = lost.Reason()
	}
	m.ended(e.Lock, reason, e.HoldTime)
}

// ended records the end of a hold; reason is empty if it was not lost.
func (m *Metrics) ended(l *mutex.Lock, reason mutex.LostReason, held time.Duration) {
	m.hold.WithLabelValues(m.groups.labels(l.Name())...).Observe(held.Seconds())
	if reason != "" {
		m.count(m.lost, l.Name(), string(reason))
	}
}

// groupSet finds the group of a lock. It creates a group's series when it first sees the group, while there are fewer
// than maxGroups.
type groupSet struct {
	of        func(lock string) string // nil = there are no groups
	maxGroups int
	create    func(labels ...string)

	mu    sync.Mutex
	known map[string]bool
}

// labels returns the values of the first labels of a lock's series. A share is in the group of the whole lock.
func (g *groupSet) labels(name string) []string {
	if g.of == nil {
		return nil
	}
	if lock, _, isShare := metadata.ParseShare(name); isShare {
		name = lock
	}
	group := text.Label(g.of(name))
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.known) >= g.maxGroups && !g.known[group] {
		group = OtherGroup
	}
	if !g.known[group] {
		g.create(group)
		g.known[group] = true
	}
	return []string{group}
}
