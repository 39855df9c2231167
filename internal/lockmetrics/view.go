package lockmetrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/clustermutex/unlocker/internal/lockview"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/text"
)

// Followed is a view of the locks: [*lockview.View] is one.
type Followed interface {
	Fresh() protocol.Freshness
	Stats() lockview.Stats
}

// ViewCollector exports how current a program's view of the locks is. It is a prometheus.Collector.
type ViewCollector struct {
	namespace string
	followed  Followed
	raised    func() ([]string, bool)
}

// NewViewCollector returns a collector; it is not registered. namespace is the first word of every metric name:
// unlocker or mutexdash. alarms returns the alarms that etcd has raised; false if they are unknown.
func NewViewCollector(namespace string, followed Followed, alarms func() ([]string, bool)) *ViewCollector {
	return &ViewCollector{namespace, followed, alarms}
}

// Describe implements prometheus.Collector. It describes nothing: a scrape itself says what its metrics are.
func (v *ViewCollector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (v *ViewCollector) Collect(ch chan<- prometheus.Metric) {
	to := scrape{v.namespace, ch}
	f := v.followed.Fresh()
	to.gauge("etcd_up", "Whether the view of the locks is complete and current.")(oneIf(f.Synced))
	if !f.HeardAt.IsZero() {
		to.gauge("etcd_revision", "The highest revision of etcd seen.")(float64(f.HighestRevision))
		to.gauge("last_sync_timestamp_seconds", "When the view of the locks was last known to be current.").
			at(f.HeardAt)
	}
	s := v.followed.Stats()
	counts(to.counter("resyncs_total", "How often all locks were listed again, by reason.", "reason"), s.Resyncs)
	counts(to.counter("watch_events_total", "Changes of keys received from etcd, by type.", "type"),
		map[string]uint64{"put": s.Puts, "delete": s.Deletes})
	counts(to.counter("watch_restarts_total", "How often the watch on etcd ended and was opened again, by reason.",
		"reason"), s.WatchRestarts)
	counts(to.counter("metadata_errors_total", "Problems found when reading lock records, by reason.", "reason"),
		s.MetadataErrors)
	v.alarms(to)
}

func (v *ViewCollector) alarms(to scrape) {
	raised, known := v.raised()
	if !known {
		return
	}
	states := map[string]bool{"NOSPACE": false, "CORRUPT": false}
	for _, alarm := range raised {
		states[text.Label(alarm)] = true
	}
	raisedNow := to.gauge("etcd_alarm", "Whether etcd has raised this alarm.", "alarm")
	for alarm, on := range states {
		raisedNow(oneIf(on), alarm)
	}
}

func counts[K ~string](to metric, counts map[K]uint64) {
	for name, n := range counts {
		to(float64(n), text.Label(string(name)))
	}
}
