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

// View exports how current a program's view of the locks is. It is a prometheus.Collector.
type View struct {
	followed Followed
	raised   func() ([]string, bool)
	all      []*prometheus.Desc

	up, alarm, revision, lastSync, resyncs, events, restarts, metadataErrors *prometheus.Desc
}

// NewView returns a collector; it is not registered. namespace is the first word of every metric name: unlocker or
// mutexdash. alarms returns the alarms that etcd has raised; false if they are unknown.
func NewView(namespace string, followed Followed, alarms func() ([]string, bool)) *View {
	v := &View{followed: followed, raised: alarms}
	d := func(name, help string, labels ...string) *prometheus.Desc {
		v.all = append(v.all, prometheus.NewDesc(namespace+"_"+name, help, labels, nil))
		return v.all[len(v.all)-1]
	}
	v.up = d("etcd_up", "Whether the view of the locks is complete and current.")
	v.alarm = d("etcd_alarm", "Whether etcd has raised this alarm.", "alarm")
	v.revision = d("etcd_revision", "The highest revision of etcd seen.")
	v.lastSync = d("last_sync_timestamp_seconds", "When the view of the locks was last known to be current.")
	v.resyncs = d("resyncs_total", "How often all locks were listed again, by reason.", "reason")
	v.events = d("watch_events_total", "Changes of keys received from etcd, by type.", "type")
	v.restarts = d("watch_restarts_total", "How often the watch on etcd ended and was opened again, by reason.",
		"reason")
	v.metadataErrors = d("metadata_errors_total", "Problems found when reading lock records, by reason.", "reason")
	return v
}

// Describe implements prometheus.Collector.
func (v *View) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range v.all {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (v *View) Collect(ch chan<- prometheus.Metric) {
	v.fresh(ch, v.followed.Fresh())
	v.activity(ch, v.followed.Stats())
	v.alarms(ch)
}

func (v *View) fresh(ch chan<- prometheus.Metric, f protocol.Freshness) {
	gauge(ch, v.up, truth(f.Synced))
	if !f.HeardAt.IsZero() {
		gauge(ch, v.revision, float64(f.HighestRevision))
		instant(ch, v.lastSync, f.HeardAt)
	}
}

func (v *View) activity(ch chan<- prometheus.Metric, s lockview.Stats) {
	counters(ch, v.resyncs, s.Resyncs)
	counters(ch, v.events, map[string]uint64{"put": s.Puts, "delete": s.Deletes})
	counters(ch, v.restarts, s.WatchRestarts)
	counters(ch, v.metadataErrors, s.MetadataErrors)
}

func (v *View) alarms(ch chan<- prometheus.Metric) {
	raised, known := v.raised()
	if !known {
		return
	}
	states := map[string]bool{"NOSPACE": false, "CORRUPT": false}
	for _, alarm := range raised {
		states[text.Label(alarm)] = true
	}
	for alarm, on := range states {
		gauge(ch, v.alarm, truth(on), alarm)
	}
}

func counters[K ~string](ch chan<- prometheus.Metric, d *prometheus.Desc, counts map[K]uint64) {
	for name, n := range counts {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), text.Label(string(name)))
	}
}
