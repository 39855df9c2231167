package lockmetrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/text"
)

// ViewConfig connects a [View] to what it exports.
type ViewConfig struct {
	Namespace string                    // the first word of every metric name: unlocker or mutexdash
	Fresh     func() protocol.Freshness // how current the view is
	Activity  func() Activity
	Alarms    func() ([]string, bool) // alarms that etcd has raised; false if unknown
}

// Activity counts what the view did, by metric label.
type Activity struct {
	Resyncs        map[string]uint64 // by reason
	Events         map[string]uint64 // by type
	Restarts       map[string]uint64 // by reason
	MetadataErrors map[string]uint64 // by reason
}

// View exports how current a program's view of the locks is. It is a prometheus.Collector.
type View struct {
	c   ViewConfig
	all []*prometheus.Desc

	up, alarm, revision, lastSync, resyncs, events, restarts, metadataErrors *prometheus.Desc
}

// NewView returns a collector; it is not registered.
func NewView(c ViewConfig) *View {
	v := &View{c: c}
	d := func(name, help string, labels ...string) *prometheus.Desc {
		v.all = append(v.all, prometheus.NewDesc(c.Namespace+"_"+name, help, labels, nil))
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
	v.fresh(ch, v.c.Fresh())
	v.activity(ch, v.c.Activity())
	v.alarms(ch)
}

func (v *View) fresh(ch chan<- prometheus.Metric, f protocol.Freshness) {
	gauge(ch, v.up, truth(f.Synced))
	if !f.HeardAt.IsZero() {
		gauge(ch, v.revision, float64(f.HighestRevision))
		instant(ch, v.lastSync, f.HeardAt)
	}
}

func (v *View) activity(ch chan<- prometheus.Metric, a Activity) {
	counters(ch, v.resyncs, a.Resyncs)
	counters(ch, v.events, a.Events)
	counters(ch, v.restarts, a.Restarts)
	counters(ch, v.metadataErrors, a.MetadataErrors)
}

func (v *View) alarms(ch chan<- prometheus.Metric) {
	raised, known := v.c.Alarms()
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

func counters(ch chan<- prometheus.Metric, d *prometheus.Desc, counts map[string]uint64) {
	for name, n := range counts {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), text.Label(name))
	}
}
