package pod

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/clustermutex/unlocker/pkg/metadata"
)

// metrics holds what the witness counts.
type metrics struct {
	pods, synced *prometheus.Desc
	statements   *prometheus.CounterVec
	failures     *prometheus.CounterVec
}

func newMetrics() *metrics {
	m := &metrics{
		pods: prometheus.NewDesc("unlocker_kubernetes_pods", "Pods that the witness in Kubernetes watches.", nil, nil),
		synced: prometheus.NewDesc("unlocker_kubernetes_synced",
			"Whether the witness in Kubernetes knows all pods and hears of their changes.", nil, nil),
		statements: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "unlocker_kubernetes_statements_total",
			Help: "What the witness in Kubernetes stated of holders, by certainty and cause.",
		}, []string{"certainty", "cause"}),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "unlocker_kubernetes_errors_total",
			Help: "Requests of the witness in Kubernetes that failed: to the API server, or to etcd.",
		}, []string{"error"}),
	}
	for _, cause := range []string{metadata.CauseContainerEnded, metadata.CauseContainerRestarted,
		metadata.CausePodEnded} {
		m.statements.WithLabelValues("proof", cause)
	}
	for _, cause := range []string{metadata.CauseContainerEnded, metadata.CauseContainerRestarted,
		metadata.CausePodEnded, metadata.CausePodDeleted, metadata.CausePodNeverSeen, metadata.CauseNodeNotReady} {
		m.statements.WithLabelValues("suspicion", cause)
	}
	for _, kind := range []string{"unreachable", "forbidden", "unauthorized", "overloaded", "other", "etcd"} {
		m.failures.WithLabelValues(kind)
	}
	return m
}

// Describe implements [prometheus.Collector].
func (w *Witness) Describe(ch chan<- *prometheus.Desc) {
	ch <- w.metrics.pods
	ch <- w.metrics.synced
	w.metrics.statements.Describe(ch)
	w.metrics.failures.Describe(ch)
}

// Collect implements [prometheus.Collector].
func (w *Witness) Collect(ch chan<- prometheus.Metric) {
	synced := 0.0
	if w.synced() {
		synced = 1
	}
	ch <- prometheus.MustNewConstMetric(w.metrics.pods, prometheus.GaugeValue, float64(w.pods.count()))
	ch <- prometheus.MustNewConstMetric(w.metrics.synced, prometheus.GaugeValue, synced)
	w.metrics.statements.Collect(ch)
	w.metrics.failures.Collect(ch)
}
