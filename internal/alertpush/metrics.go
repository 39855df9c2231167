package alertpush

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

type metrics struct {
	prometheus.Collector
	pushes          *prometheus.CounterVec
	lastSuccess     *prometheus.GaugeVec
	alerts, leftOut prometheus.Gauge
}

func newMetrics() *metrics {
	all := prometheus.NewRegistry()
	register := promauto.With(all)
	return &metrics{
		Collector: all,
		pushes: register.NewCounterVec(prometheus.CounterOpts{
			Name: "unlocker_alert_pushes_total", Help: "Requests that push alerts to an Alertmanager, by result.",
		}, []string{"alertmanager", "result"}),
		lastSuccess: register.NewGaugeVec(prometheus.GaugeOpts{
			Name: "unlocker_alert_push_last_success_timestamp_seconds",
			Help: "When the Alertmanager last accepted alerts; 0 is never.",
		}, []string{"alertmanager"}),
		alerts: register.NewGauge(prometheus.GaugeOpts{
			Name: "unlocker_alert_push_alerts", Help: "Active alerts that are pushed.",
		}),
		leftOut: register.NewGauge(prometheus.GaugeOpts{
			Name: "unlocker_alert_push_left_out", Help: "Active alerts that are not pushed because there are too many.",
		}),
	}
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
