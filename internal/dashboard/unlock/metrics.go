package unlock

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	forced  *prometheus.CounterVec
	notices *prometheus.CounterVec
}

// newMetrics makes the metrics. notify says that notices of force unlocks are sent.
func newMetrics(notify bool) *metrics {
	m := &metrics{
		notices: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "mutexdash_notices_total",
			Help: "Webhook notices of force unlocks, by result.",
		}, []string{"result"}),
		forced: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "mutexdash_force_unlocks_total", Help: "Requested force unlocks, by result.",
		}, []string{"result"}),
	}
	for _, result := range []string{"success", "conflict", "denied", "error"} {
		m.forced.WithLabelValues(result)
	}
	for _, result := range []string{"success", "error", "dropped"} {
		if notify {
			m.notices.WithLabelValues(result)
		}
	}
	return m
}

// Describe sends the descriptions of the metrics.
func (h *Handler) Describe(ch chan<- *prometheus.Desc) {
	h.metrics.forced.Describe(ch)
	h.metrics.notices.Describe(ch)
}

// Collect sends the metrics.
func (h *Handler) Collect(ch chan<- prometheus.Metric) {
	h.metrics.forced.Collect(ch)
	h.metrics.notices.Collect(ch)
}

// CountDenied counts a force unlock that was refused for where it came from.
func (h *Handler) CountDenied() { h.metrics.forced.WithLabelValues("denied").Inc() }
