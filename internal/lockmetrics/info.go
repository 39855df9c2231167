package lockmetrics

import "github.com/prometheus/client_golang/prometheus"

// PolicyInfo is the constant 1 with the policy of an unlocker.
func PolicyInfo(namespace, policy string) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: namespace, Name: "policy_info", Help: "Whether stale locks are removed; always 1.",
		ConstLabels: prometheus.Labels{"policy": label(policy)},
	}, func() float64 { return 1 })
}
