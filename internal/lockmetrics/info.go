package lockmetrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/clustermutex/unlocker/internal/text"
)

// PolicyInfo is the constant 1 with the policy of an unlocker.
func PolicyInfo(namespace, policy string) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: namespace, Name: "policy_info", Help: "Whether stale locks are removed; always 1.",
		ConstLabels: prometheus.Labels{"policy": text.Label(policy)},
	}, func() float64 { return 1 })
}

// DashboardInfo is the constant 1 with the address of the dashboard, for links in alerts. It has to end with a slash,
// as the rules add the path of a page.
func DashboardInfo(namespace, url string) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: namespace, Name: "dashboard_info", Help: "Configured URL of the dashboard; always 1.",
		ConstLabels: prometheus.Labels{"url": url},
	}, func() float64 { return 1 })
}
