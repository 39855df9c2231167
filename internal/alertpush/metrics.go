package alertpush

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	pushes          *prometheus.CounterVec
	lastSuccess     *prometheus.GaugeVec
	alerts, leftOut prometheus.Gauge
}

func newMetrics(urls []string) *metrics {
	m := &metrics{
		pushes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "unlocker_alert_pushes_total", Help: "Requests that push alerts to an Alertmanager, by result.",
		}, []string{"alertmanager", "result"}),
		lastSuccess: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "unlocker_alert_push_last_success_timestamp_seconds", Help: "When the Alertmanager took alerts for the last time; 0 is never.",
		}, []string{"alertmanager"}),
		alerts: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "unlocker_alert_push_alerts", Help: "Alerts that are pushed now, without those that are over.",
		}),
		leftOut: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "unlocker_alert_push_left_out", Help: "Alerts that are not pushed because there are too many.",
		}),
	}
	for _, url := range urls {
		m.lastSuccess.WithLabelValues(url)
	}
	return m
}

func (m *metrics) all() []prometheus.Collector {
	return []prometheus.Collector{m.pushes, m.lastSuccess, m.alerts, m.leftOut}
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
