package mutexmetrics

import (
	"context"
	"errors"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/model"

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

	// WaitBuckets and HoldBuckets are the buckets of the histograms, in seconds; [DefaultWaitBuckets] and
	// [DefaultHoldBuckets] if nil.
	WaitBuckets, HoldBuckets []float64

	// Exemplar returns the labels of an exemplar for a wait and the hold after it, such as the trace id from ctx, which
	// is the context of the call that takes the lock; nil if there is none. It must be safe for concurrent use. Labels
	// that Prometheus does not accept, or that have more than [prometheus.ExemplarMaxRunes] runes, are left out. If
	// Exemplar is nil, there are no exemplars.
	Exemplar func(ctx context.Context) prometheus.Labels
}

// DefaultWaitBuckets returns buckets from a round trip to etcd up to an hour.
func DefaultWaitBuckets() []float64 {
	return []float64{.001, .0025, .005, .01, .025, .05, .1, .5, 1, 5, 15, 60, 300, 900, 3600}
}

// DefaultHoldBuckets returns buckets from a hundredth of a second up to a day.
func DefaultHoldBuckets() []float64 {
	return []float64{.01, .05, .1, .5, 1, 5, 15, 60, 300, 900, 3600, 4 * 3600, 24 * 3600}
}

// Metrics is a [prometheus.Collector] that is fed by hooks.
type Metrics struct {
	acquisitions, extensions, lost, releases *prometheus.CounterVec
	waiting, held                            *prometheus.GaugeVec
	wait, hold                               *prometheus.HistogramVec
	asked, givenTime                         *prometheus.CounterVec

	exemplars exemplars
	groups    groups
}

type series struct {
	acquisitions, extensions, lost, releases counts
	waiting, held                            prometheus.Gauge
	wait, hold                               prometheus.Observer
	asked, givenTime                         prometheus.Counter
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
		extensions: counter("mutex_extensions_total",
			"Attempts to extend a held lock, by how they ended.", labels, "result"),
		lost: counter("mutex_lost_total", "Locks that were lost while they were held, by reason.", labels,
			"reason"),
		releases: counter("mutex_releases_total", "Attempts to release a lock, by how they ended.", labels,
			"result"),
		waiting: gauge("mutex_waiting", "Calls that wait for a lock, or for etcd's answer.", labels),
		held:    gauge("mutex_held", "Locks that are held.", labels),
		wait: histogram("mutex_wait_seconds", "Time until a lock was taken or the caller gave up.", labels,
			o.WaitBuckets, DefaultWaitBuckets()),
		hold: histogram("mutex_hold_seconds", "Time from taking a lock until it was released or lost.",
			labels, o.HoldBuckets, DefaultHoldBuckets()),
		asked: counter("mutex_asked_total", "Requests to finish that holders of locks learned of.", labels),
		givenTime: counter("mutex_given_time_total", "Times that the holder of a lock was given more time.",
			labels),
	}
	m.exemplars = exemplars{of: o.Exemplar, holds: map[*mutex.Lock]prometheus.Labels{}}
	m.groups = groups{of: o.Group, maxGroups: o.MaxGroups, known: map[string]*series{}, make: m.group}
	if o.MaxGroups <= 0 {
		m.groups.maxGroups = DefaultMaxGroups
	}
	if o.Group == nil {
		only := m.series()
		m.groups.of = func(string) string { return "" }
		m.groups.make = func(string) *series { return only }
	}
	return m
}

func counter(name, help string, labels []string, by ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help},
		append(labels[:len(labels):len(labels)], by...))
}

func gauge(name, help string, labels []string) *prometheus.GaugeVec {
	return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
}

func histogram(name, help string, labels []string, buckets, standard []float64) *prometheus.HistogramVec {
	if buckets == nil {
		buckets = standard
	}
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
}

func (m *Metrics) group(name string) *series { return m.series(name) }

// series creates all series with these values of the first labels.
func (m *Metrics) series(labels ...string) *series {
	released := []mutex.Result{mutex.ResultReleased, mutex.ResultLost, mutex.ResultError}
	return &series{
		acquisitions: counters(m.acquisitions, labels, mutex.AcquireResults()),
		extensions:   counters(m.extensions, labels, mutex.ExtendResults()),
		lost:         counters(m.lost, labels, mutex.LostReasons()),
		releases:     counters(m.releases, labels, released),
		waiting:      m.waiting.WithLabelValues(labels...), held: m.held.WithLabelValues(labels...),
		wait: m.wait.WithLabelValues(labels...), hold: m.hold.WithLabelValues(labels...),
		asked: m.asked.WithLabelValues(labels...), givenTime: m.givenTime.WithLabelValues(labels...),
	}
}

// counts holds counters by the value of their last label.
type counts map[string]prometheus.Counter

// add increments the counter of word. Unknown words are not counted, because they would create unexpected series.
func (c counts) add(word string) {
	if counter, ok := c[word]; ok {
		counter.Inc()
	}
}

func counters[W ~string](vec *prometheus.CounterVec, labels []string, words []W) counts {
	all := counts{}
	for _, w := range words {
		all[string(w)] = vec.WithLabelValues(append(labels[:len(labels):len(labels)], string(w))...)
	}
	return all
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
		Acquiring: m.acquiring, Acquired: m.acquired, Extended: m.extended, Lost: m.lose, Released: m.released,
		FinishRequested: func(e mutex.FinishRequested) { m.groups.series(e.Lock.Name()).asked.Inc() },
		MoreTimeGiven:   func(e mutex.MoreTimeGiven) { m.groups.series(e.Lock.Name()).givenTime.Inc() },
	}
}

func (m *Metrics) acquiring(e mutex.Acquiring) {
	during(e.Context, m.groups.series(e.Name).waiting)
}

// during keeps g incremented until ctx ends: hooks do not report every such end.
func during(ctx context.Context, g prometheus.Gauge) {
	g.Inc()
	context.AfterFunc(ctx, g.Dec)
}

func (m *Metrics) acquired(e mutex.Acquired) {
	s := m.groups.series(e.Name)
	s.acquisitions.add(string(e.Result))
	if e.Result != mutex.ResultAcquired && e.Result != mutex.ResultGaveUp {
		return
	}
	exemplar := m.exemplars.labels(e.Context)
	observe(s.wait, e.WaitTime, exemplar)
	if e.Lock != nil {
		during(e.Lock.Context(), s.held)
		m.exemplars.keep(e.Lock, exemplar)
	}
}

func (m *Metrics) extended(e mutex.Extended) {
	m.groups.series(e.Lock.Name()).extensions.add(string(e.Result))
}

func (m *Metrics) lose(e mutex.Lost) { m.ended(e.Lock, e.Reason, e.HoldTime) }

func (m *Metrics) released(e mutex.Released) {
	m.groups.series(e.Lock.Name()).releases.add(string(e.Result))
	var reason mutex.LostReason
	if lost, isLost := errors.AsType[*mutex.LostError](e.Err); isLost {
		reason = lost.Reason()
	}
	m.ended(e.Lock, reason, e.HoldTime)
}

// ended records the end of a hold; reason is empty if it was not lost.
func (m *Metrics) ended(l *mutex.Lock, reason mutex.LostReason, held time.Duration) {
	s := m.groups.series(l.Name())
	observe(s.hold, held, m.exemplars.take(l))
	if reason != "" {
		s.lost.add(string(reason))
	}
}

// exemplars finds the exemplars of waits and keeps those of holds until they end, because the end of a hold does not
// have the context of the call that took the lock.
type exemplars struct {
	of func(ctx context.Context) prometheus.Labels

	mu    sync.Mutex
	holds map[*mutex.Lock]prometheus.Labels
}

// labels returns the exemplar for ctx; nil if there is none.
func (e *exemplars) labels(ctx context.Context) prometheus.Labels {
	if e.of == nil {
		return nil
	}
	if labels := e.of(ctx); isValidExemplar(labels) {
		return labels
	}
	return nil
}

// keep remembers the exemplar of a hold until take. If the hold has already ended, its hook has called take and will
// not again; no hook reports a hold that is detached or whose client is closed.
func (e *exemplars) keep(l *mutex.Lock, labels prometheus.Labels) {
	if labels == nil {
		return
	}
	e.mu.Lock()
	e.holds[l] = labels
	e.mu.Unlock()
	if l.Context().Err() != nil {
		e.take(l)
		return
	}
	context.AfterFunc(l.Context(), func() {
		cause := context.Cause(l.Context())
		if errors.Is(cause, mutex.ErrDetached) || errors.Is(cause, mutex.ErrClosed) {
			e.take(l)
		}
	})
}

// take returns the exemplar of a hold and forgets it.
func (e *exemplars) take(l *mutex.Lock) prometheus.Labels {
	e.mu.Lock()
	defer e.mu.Unlock()
	labels := e.holds[l]
	delete(e.holds, l)
	return labels
}

// observe adds a duration to a histogram, with an exemplar unless labels is nil.
func observe(to prometheus.Observer, took time.Duration, labels prometheus.Labels) {
	if with, can := to.(prometheus.ExemplarObserver); can && labels != nil {
		with.ObserveWithExemplar(took.Seconds(), labels)
		return
	}
	to.Observe(took.Seconds())
}

// isValidExemplar reports whether the labels are a valid exemplar. The library panics on invalid ones.
func isValidExemplar(labels prometheus.Labels) bool {
	runes := 0
	for name, value := range labels {
		if !model.LegacyValidation.IsValidLabelName(name) || !utf8.ValidString(value) {
			return false
		}
		runes += utf8.RuneCountInString(name) + utf8.RuneCountInString(value)
	}
	return len(labels) > 0 && runes <= prometheus.ExemplarMaxRunes
}

// groups finds the series of a lock's group, and creates them while there are fewer than most groups.
type groups struct {
	of        func(lock string) string
	maxGroups int
	make      func(group string) *series

	mu    sync.RWMutex
	known map[string]*series
}

// series returns the series for a lock. A share is in the group of the whole lock.
func (g *groups) series(name string) *series {
	if lock, _, isShare := metadata.ParseShare(name); isShare {
		name = lock
	}
	group := text.Label(g.of(name))
	g.mu.RLock()
	s := g.known[group]
	g.mu.RUnlock()
	if s != nil {
		return s
	}
	return g.add(group)
}

func (g *groups) add(group string) *series {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.known) >= g.maxGroups && g.known[group] == nil {
		group = OtherGroup
	}
	s := g.known[group]
	if s == nil {
		s = g.make(group)
		g.known[group] = s
	}
	return s
}
