package alertpush

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

type metrics struct {
	pushes          *prometheus.CounterVec
	lastSuccess     *prometheus.GaugeVec
	alerts, leftOut prometheus.Gauge
}

func newMetrics() *metrics {
	return &metrics{
		pushes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "unlocker_alert_pushes_total", Help: "Requests that push alerts to an Alertmanager, by result.",
		}, []string{"alertmanager", "result"}),
		lastSuccess: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "unlocker_alert_push_last_success_timestamp_seconds",
			Help: "When the Alertmanager last accepted alerts; 0 is never.",
		}, []string{"alertmanager"}),
		alerts: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "unlocker_alert_push_alerts", Help: "Active alerts that are pushed.",
		}),
		leftOut: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "unlocker_alert_push_left_out", Help: "Active alerts that are not pushed because there are too many.",
		}),
	}
}

func (m *metrics) all() []prometheus.Collector {
	return []prometheus.Collector{m.pushes, m.lastSuccess, m.alerts, m.leftOut}
}

// counts are the metrics of one Alertmanager.
type counts struct {
	succeeded, failed prometheus.Counter
	last              prometheus.Gauge
}

func (m *metrics) of(url string) counts {
	return counts{m.pushes.WithLabelValues(url, "success"), m.pushes.WithLabelValues(url, "error"),
		m.lastSuccess.WithLabelValues(url)}
}

func (c counts) success(at time.Time) {
	c.succeeded.Inc()
	c.last.Set(float64(at.UnixMilli()) / 1000)
}

// Describe implements [prometheus.Collector].
func (p *Pusher) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range p.metrics.all() {
		c.Describe(ch)
	}
}

// Collect implements [prometheus.Collector].
func (p *Pusher) Collect(ch chan<- prometheus.Metric) {
	for _, c := range p.metrics.all() {
		c.Collect(ch)
	}
}
