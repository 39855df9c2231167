package actions

import "github.com/prometheus/client_golang/prometheus"

// results counts by result.
type results struct{ *prometheus.CounterVec }

// newResults counts what was asked for.
func newResults(name, help string) results {
	return newCounts(name, help, "success", "conflict", "denied", "error")
}

// newNotices counts notices; known says that they are sent.
func newNotices(known bool) results {
	var all []string
	if known {
		all = []string{"success", "error", "dropped"}
	}
	return newCounts("mutexdash_notices_total", "Webhook notices of what operators did, by result.", all...)
}

func newCounts(name, help string, all ...string) results {
	v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{"result"})
	for _, result := range all {
		v.WithLabelValues(result)
	}
	return results{v}
}

func (r results) count(result string) { r.WithLabelValues(result).Inc() }

// Describe sends the descriptions of the metrics.
func (h *Handler) Describe(ch chan<- *prometheus.Desc) {
	for _, o := range h.operations {
		o.results.Describe(ch)
	}
	h.told.Describe(ch)
}

// Collect sends the metrics.
func (h *Handler) Collect(ch chan<- prometheus.Metric) {
	for _, o := range h.operations {
		o.results.Collect(ch)
	}
	h.told.Collect(ch)
}

// CountDenied counts an action that was refused for where it came from.
func (o *Operation) CountDenied() { o.results.count("denied") }
