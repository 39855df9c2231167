package lockmetrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/clustermutex/unlocker/internal/text"
)

// PolicyInfo returns the constant 1 with the policy of an unlocker as a label.
func PolicyInfo(namespace, policy string) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: namespace, Name: "policy_info", Help: "The policy for stale locks, as a label; always 1.",
		ConstLabels: prometheus.Labels{"policy": text.Label(policy)},
	}, func() float64 { return 1 })
}

// DashboardInfo returns the constant 1 with the address of the dashboard as a label, for links in alerts. The address
// has to end with a slash, because the rules append the path of a page.
func DashboardInfo(namespace, url string) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: namespace, Name: "dashboard_info", Help: "Configured URL of the dashboard; always 1.",
		ConstLabels: prometheus.Labels{"url": url},
	}, func() float64 { return 1 })
}
