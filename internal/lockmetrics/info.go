package lockmetrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/clustermutex/unlocker/pkg/metadata"
)

// PolicyInfo is the constant 1 with the policy of an unlocker.
func PolicyInfo(namespace, policy string) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: namespace, Name: "policy_info", Help: "Whether stale locks are removed; always 1.",
		ConstLabels: prometheus.Labels{"policy": metadata.Label(policy)},
	}, func() float64 { return 1 })
}
