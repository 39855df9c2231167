package lockmetrics

import (
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
)

// BuildInfo is the constant 1 with the program's version and the source revision it was built from.
func BuildInfo(namespace, version, revision string) prometheus.Collector {
	return info(namespace+"_build_info", "The program: version, source revision and Go version.", prometheus.Labels{
		"version": label(version), "revision": label(revision), "goversion": runtime.Version(),
	})
}

// PolicyInfo is the constant 1 with the policy of an unlocker.
func PolicyInfo(namespace, policy string) prometheus.Collector {
	return info(namespace+"_policy_info", "Whether stale locks are removed.", prometheus.Labels{"policy": label(policy)})
}

func info(name, help string, labels prometheus.Labels) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: labels}, func() float64 { return 1 })
}
