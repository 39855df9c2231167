package lockmetrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// scrape is one scrape. The name, the help and the labels of a metric are given where its samples are made.
type scrape struct {
	namespace string
	ch        chan<- prometheus.Metric
}

// metric writes samples of one metric in a scrape.
type metric func(value float64, labels ...string)

func (s scrape) gauge(name, help string, labels ...string) metric {
	return s.metric(prometheus.GaugeValue, name, help, labels)
}

func (s scrape) counter(name, help string, labels ...string) metric {
	return s.metric(prometheus.CounterValue, name, help, labels)
}

func (s scrape) metric(kind prometheus.ValueType, name, help string, labels []string) metric {
	desc := prometheus.NewDesc(s.namespace+"_"+name, help, labels, nil)
	return func(value float64, labels ...string) {
		s.ch <- prometheus.MustNewConstMetric(desc, kind, value, labels...)
	}
}

// at writes a time unless it is zero, which would read as 1970.
func (m metric) at(t time.Time, labels ...string) {
	if !t.IsZero() {
		m(float64(t.UnixMicro())/1e6, labels...) // seconds since 1970
	}
}
