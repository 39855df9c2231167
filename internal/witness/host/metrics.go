package host

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/clustermutex/unlocker/pkg/metadata"
)

// Collector returns the metrics of the witness in this namespace.
func (w *Witness) Collector(namespace string) prometheus.Collector {
	all := prometheus.NewRegistry()
	register := promauto.With(all)
	gauge := func(name, help string, value func() int) {
		register.NewGaugeFunc(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help}, w.locked(value))
	}
	gauge("locks", "Locks whose records say which process of this machine holds them.", func() int {
		return len(w.locks)
	})
	gauge("processes", "Processes that are watched for their end.", func() int {
		return count(w.running, func(p *process) bool { return len(p.watchers) > 0 })
	})
	gauge("unseen_processes", "Processes that hold locks but are invisible to the witness.", func() int {
		return count(w.running, func(p *process) bool { return p.unseen })
	})
	gauge("pending_statements", "Locks whose holders have ended, without a statement in etcd so far.", func() int {
		return count(w.locks, func(l *held) bool { return l.statement != nil && l.publishedAt.IsZero() })
	})
	gauge("synced", "Whether the witness is up to date with the locks in etcd.", func() int {
		_, cause := w.cfg.Freshness()
		return oneIf(cause == "")
	})
	gauge("may_state", "Whether etcd accepts the statements of the witness.", func() int {
		return oneIf(w.writeProblem == "")
	})
	register.NewCounterFunc(prometheus.CounterOpts{Namespace: namespace, Name: "statement_failures_total",
		Help: "Attempts to write a statement that failed."}, w.locked(func() int { return w.failed }))
	for _, cause := range []string{metadata.CauseProcessEnded, metadata.CauseRebooted} {
		register.NewCounterFunc(prometheus.CounterOpts{Namespace: namespace, Name: "statements_total",
			Help: "Statements that etcd has accepted.", ConstLabels: prometheus.Labels{"cause": cause}},
			w.locked(func() int { return w.accepted[cause] }))
	}
	return all
}

// locked returns a function that reads a value while it holds mu.
func (w *Witness) locked(value func() int) func() float64 {
	return func() float64 {
		w.mu.Lock()
		defer w.mu.Unlock()
		return float64(value())
	}
}

func count[K comparable, V any](all map[K]V, is func(V) bool) (n int) {
	for _, one := range all {
		if is(one) {
			n++
		}
	}
	return n
}

func oneIf(b bool) int {
	if b {
		return 1
	}
	return 0
}
