// Package lockmetrics exports the held locks to Prometheus. Samples are computed at each scrape, from the view and the
// judgement that the page and the sweeper use, too: metrics cannot contradict them, and a lock that is gone leaves no
// series behind.
//
// Lock names, owners and hostnames are text that clients wrote into etcd. They become labels only after they are made
// short and printable, and only for as many locks as the limit allows. Two locks with equal labels never break a
// scrape.
//
// Samples are timestamps and counts. Ages are computed by the reader.
package lockmetrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/clustermutex/unlocker/internal/diagnosis"
	"github.com/clustermutex/unlocker/internal/locks"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// namespace is the first word of the names of metrics about locks. Only unlockers export them.
const namespace = "unlocker"

// Config connects a collector to the view that it exports. Its functions are required, unless it says otherwise.
type Config struct {
	Snapshots *locks.Snapshots     // of the view
	Clock     func() time.Duration // the monotonic clock that stamped Record.Seen
	Now       func() time.Time     // the wall clock; time.Now when nil

	Fresh func() protocol.Freshness // how current the view is; before it was heard first, no locks are exported

	Removes  bool                   // whether this unlocker removes locks
	Excluded func(lock string) bool // locks that are never removed, by their names; nil: none
	// Disagreements returns how many settings differ between the running unlockers.
	Disagreements func() int

	Series      Series // which locks get series of their own; none if empty
	SeriesLimit int    // the most locks with series of their own

	// LeasedAlertAfter is after how long a lock of another library gets a series of its own; 0 = never.
	LeasedAlertAfter time.Duration

	// Attributes are the attributes of its record that become labels of a lock's series.
	Attributes []string
}

// Collector exports the held locks. It is a prometheus.Collector; [Collector.Ended] and [Collector.Acquired] report
// what cannot be seen at a scrape.
type Collector struct {
	config Config

	counted *prometheus.Registry // what is not computed at a scrape: held and byLock
	held    *prometheus.HistogramVec
	byLock  *byLock
}

// New returns a collector; it is not registered.
func New(c Config) *Collector {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Series != SeriesAll && c.Series != SeriesAlerting {
		c.SeriesLimit = 0
	}
	limit := 0
	if c.Series == SeriesAll {
		limit = c.SeriesLimit
	}
	counted := prometheus.NewRegistry()
	register := promauto.With(counted)
	held := histogram(register, "hold_seconds", "How long locks were held, by how the hold ended.", "ended")
	for _, words := range metadata.Endings() {
		held.WithLabelValues(words.Word)
	}
	return &Collector{config: c, counted: counted, held: held, byLock: newByLock(register, limit)}
}

// Describe implements prometheus.Collector. It describes nothing: a scrape itself says what its metrics are.
func (c *Collector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	if fresh := c.config.Fresh(); !fresh.HeardAt.IsZero() {
		now := c.config.Now()
		s := c.config.Snapshots.Current(now, locks.Freshness{Freshness: fresh})
		to := scrape{namespace, ch}
		c.waiters(to, s.Queues)
		c.locks(to, s, now)
		c.deadlocks(to, s.Cycles())
		c.unclaimed(to, s.Unclaimed)
		to.gauge("lock_delays", "Lock delays: locks and shares that no client may take yet after a hold was ended.")(
			float64(len(s.Delays)))
		c.leased(to, s.Leased, now)
		c.inconsistent(to, s.Inconsistent)
		to.gauge("disagreements", "Settings that decide how stale locks are treated and differ between the running "+
			"unlockers.")(float64(c.config.Disagreements()))
	}
	c.counted.Collect(ch)
}

func (c *Collector) inconsistent(to scrape, found []diagnosis.Inconsistent) {
	inconsistent := to.gauge("inconsistent_locks", "Locks in a state that no client leaves: more permits out than "+
		"there are, holders that exclude each other, a lock delay without a lease.", "kind")
	counts := map[diagnosis.InconsistencyKind]int{}
	for _, l := range found {
		counts[l.Kind]++
	}
	for _, kind := range diagnosis.InconsistencyKinds() {
		inconsistent(float64(counts[kind]), string(kind))
	}
}

func oneIf(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// PolicyInfo returns the constant 1 with the policy of an unlocker as labels.
func PolicyInfo(policy, abandoned string) prometheus.Collector {
	return info("policy_info", "The policy for stale locks, and for those of dead holders, as labels; always 1.",
		prometheus.Labels{"policy": policy, "abandoned": abandoned})
}

// DashboardInfo returns the constant 1 with the address of the dashboard as a label, for links in alerts. The address
// has to end with a slash, because the rules append the path of a page.
func DashboardInfo(url string) prometheus.Collector {
	return info("dashboard_info", "Configured URL of the dashboard; always 1.", prometheus.Labels{"url": url})
}

// info returns the constant 1 with labels.
func info(name, help string, labels prometheus.Labels) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help,
		ConstLabels: labels}, func() float64 { return 1 })
}

// scrape is one scrape. The name, the help and the labels of a metric are given where its samples are made.
type scrape struct {
	namespace string
	ch        chan<- prometheus.Metric
}

// metric writes samples of one metric in a scrape.
type metric func(value float64, labels ...string)

func (s scrape) gauge(name, help string, labels ...string) metric {
	return s.metric(prometheus.GaugeValue, name, help, labels)
}

func (s scrape) counter(name, help string, labels ...string) metric {
	return s.metric(prometheus.CounterValue, name, help, labels)
}

func (s scrape) metric(kind prometheus.ValueType, name, help string, labels []string) metric {
	desc := prometheus.NewDesc(s.namespace+"_"+name, help, labels, nil)
	return func(value float64, labels ...string) {
		s.ch <- prometheus.MustNewConstMetric(desc, kind, value, labels...)
	}
}

// at writes a time unless it is zero, which would read as 1970.
func (m metric) at(t time.Time, labels ...string) {
	if !t.IsZero() {
		m(float64(t.UnixMicro())/1e6, labels...) // seconds since 1970
	}
}

// Series selects the locks that get series of their own.
type Series string

// The choices.
const (
	SeriesAlerting Series = "alerting" // those that are not on time
	SeriesAll      Series = "all"
	SeriesNone     Series = "none"
)

// wanted returns how many locks, the most urgent first, get series of their own.
func (s Series) wanted(all, urgent int) int {
	switch s {
	case SeriesAll:
		return all
	case SeriesAlerting:
		return urgent
	}
	return 0
}
