package pod

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/clustermutex/unlocker/pkg/metadata"
)

type metrics struct {
	prometheus.Collector
	statements, failures *prometheus.CounterVec
}

func newMetrics(w *Witness) *metrics {
	all := prometheus.NewRegistry()
	register := promauto.With(all)
	register.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "unlocker_kubernetes_pods", Help: "Pods that the witness in Kubernetes watches.",
	}, func() float64 { return float64(w.pods.count()) })
	register.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "unlocker_kubernetes_synced",
		Help: "Whether the witness in Kubernetes knows all pods and is up to date.",
	}, func() float64 {
		if w.isSynced() {
			return 1
		}
		return 0
	})
	m := &metrics{
		Collector: all,
		statements: register.NewCounterVec(prometheus.CounterOpts{
			Name: "unlocker_kubernetes_statements_total",
			Help: "Statements of the witness in Kubernetes about holders, by certainty and cause.",
		}, []string{"certainty", "cause"}),
		failures: register.NewCounterVec(prometheus.CounterOpts{
			Name: "unlocker_kubernetes_errors_total",
			Help: "Requests of the witness in Kubernetes that failed: to the API server, or to etcd.",
		}, []string{"error"}),
	}
	proven := []string{metadata.CauseContainerEnded, metadata.CauseContainerRestarted, metadata.CausePodEnded}
	for _, cause := range proven {
		m.statements.WithLabelValues("proof", cause)
	}
	for _, cause := range append(proven, metadata.CausePodDeleted, metadata.CausePodNeverSeen,
		metadata.CauseNodeNotReady) {
		m.statements.WithLabelValues("suspicion", cause)
	}
	for _, kind := range []string{"unreachable", "forbidden", "unauthorized", "overloaded", "other", "etcd"} {
		m.failures.WithLabelValues(kind)
	}
	return m
}
