package actions

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

type metrics struct{ *prometheus.Registry }

func newMetrics() metrics { return metrics{prometheus.NewRegistry()} }

type results struct{ *prometheus.CounterVec }

func (m metrics) newResults(name, help string) results {
	v := promauto.With(m.Registry).NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{"result"})
	for _, result := range []string{"success", "conflict", "denied", "error"} {
		v.WithLabelValues(result)
	}
	return results{v}
}

func (r results) count(result string) { r.WithLabelValues(result).Inc() }

// CountDenied counts an action that was refused for where it came from.
func (o *Operation) CountDenied() { o.results.count("denied") }
