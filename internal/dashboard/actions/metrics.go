package actions

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/clustermutex/unlocker/internal/protocol"
)

type metrics struct {
	results map[string]*prometheus.CounterVec // by action
	notices *prometheus.CounterVec
}

// newMetrics makes the metrics. notify says that notices are sent.
func newMetrics(notify bool) *metrics {
	results := func(name, help string) *prometheus.CounterVec {
		v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{"result"})
		for _, result := range []string{"success", "conflict", "denied", "error"} {
			v.WithLabelValues(result)
		}
		return v
	}
	m := &metrics{
		notices: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "mutexdash_notices_total",
			Help: "Webhook notices of what operators did, by result.",
		}, []string{"result"}),
		results: map[string]*prometheus.CounterVec{
			protocol.ActionForceUnlock: results("mutexdash_force_unlocks_total", "Requested force unlocks, by result."),
			protocol.ActionAsk:         results("mutexdash_asks_total", "Requests to holders to finish, by result."),
			protocol.ActionExtend: results("mutexdash_extensions_total",
				"Requests to give holders more time, by result."),
			protocol.ActionAcknowledge: results("mutexdash_acknowledgements_total",
				"Requests to acknowledge locks, and to withdraw that, by result."),
			protocol.ActionEndDelay: results("mutexdash_delay_ends_total", "Requests to end lock delays, by result."),
		},
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
	for _, v := range h.metrics.results {
		v.Describe(ch)
	}
	h.metrics.notices.Describe(ch)
}

// Collect sends the metrics.
func (h *Handler) Collect(ch chan<- prometheus.Metric) {
	for _, v := range h.metrics.results {
		v.Collect(ch)
	}
	h.metrics.notices.Collect(ch)
}

// CountDenied counts an action that was refused for where it came from.
func (o *Operation) CountDenied() { o.count("denied") }

func (o *Operation) count(result string) { o.metrics.results[o.action].WithLabelValues(result).Inc() }
