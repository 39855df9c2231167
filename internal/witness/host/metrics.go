package host

import "github.com/prometheus/client_golang/prometheus"

// counts are what happened since the start.
type counts struct {
	stated map[string]uint64 // by cause
	failed uint64
}

// descs are the metrics of a witness.
type descs struct{ locks, processes, unseen, pending, stated, failed, synced, able *prometheus.Desc }

func describe(namespace string) descs {
	d := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(prometheus.BuildFQName(namespace, "", name), help, labels, nil)
	}
	return descs{
		locks:     d("locks", "Locks that processes of this machine hold and that say which."),
		processes: d("processes", "Processes that are watched for their end."),
		unseen:    d("unseen_processes", "Processes that hold locks and cannot be seen by the witness."),
		pending:   d("pending_statements", "Locks whose holders have ended, which etcd does not know yet."),
		stated:    d("statements_total", "Statements that etcd has accepted.", "cause"),
		failed:    d("statement_failures_total", "Attempts to write a statement that failed."),
		synced:    d("synced", "Whether the locks in etcd are known as they are."),
		able:      d("may_state", "Whether etcd takes what the witness states."),
	}
}

// Collector returns the metrics of the witness, with this first word.
func (w *Witness) Collector(namespace string) prometheus.Collector {
	return &collector{w, describe(namespace)}
}

type collector struct {
	witness *Witness
	descs   descs
}

// Describe sends all metrics.
func (c *collector) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(c, ch) }

// Collect counts.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	w := c.witness
	_, away := w.cfg.Fresh()
	w.mu.Lock()
	defer w.mu.Unlock()
	var processes, unseen, pending, synced, able float64
	for _, p := range w.running {
		if len(p.watchers) > 0 {
			processes++
		}
		if p.unseen {
			unseen++
		}
	}
	for _, l := range w.locks {
		if l.statement != nil && !l.published {
			pending++
		}
	}
	if away == "" {
		synced = 1
	}
	if w.mute == "" {
		able = 1
	}
	gauge := func(d *prometheus.Desc, value float64) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value)
	}
	gauge(c.descs.locks, float64(len(w.locks)))
	gauge(c.descs.processes, processes)
	gauge(c.descs.unseen, unseen)
	gauge(c.descs.pending, pending)
	gauge(c.descs.synced, synced)
	gauge(c.descs.able, able)
	ch <- prometheus.MustNewConstMetric(c.descs.failed, prometheus.CounterValue, float64(w.counts.failed))
	for _, cause := range causes() {
		ch <- prometheus.MustNewConstMetric(c.descs.stated, prometheus.CounterValue, float64(w.counts.stated[cause]),
			cause)
	}
}
