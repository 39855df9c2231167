package certificate

import (
	"crypto/x509"

	"github.com/prometheus/client_golang/prometheus"
)

// Sources has the certificates that a program depends on. Each function returns nil if there is none, and may be nil.
// It is called at each scrape, because files are replaced.
type Sources struct {
	EtcdClient func() *x509.Certificate // what the program shows to etcd
	EtcdServer func() *x509.Certificate // what etcd shows to the program
	Web        func() *x509.Certificate // what the program shows to its own callers
}

type metrics []metric

type metric struct {
	read             func() *x509.Certificate
	expiry, lifetime *prometheus.Desc
}

// NewMetrics returns <namespace>_etcd_client_certificate_expiry_timestamp_seconds and its like.
func NewMetrics(namespace string, s Sources) prometheus.Collector {
	var all metrics
	add := func(name, help string, read func() *x509.Certificate) {
		if read == nil {
			return
		}
		name = namespace + "_" + name + "_certificate_"
		all = append(all, metric{read, prometheus.NewDesc(name+"expiry_timestamp_seconds", help, nil, nil),
			prometheus.NewDesc(name+"lifetime_seconds", "Lifetime of that certificate.", nil, nil)})
	}
	add("etcd_client", "When the first certificate in the file of --etcd.cert expires.", s.EtcdClient)
	add("etcd_server", "When the first certificate of etcd's members, or of their chains, expires.", s.EtcdServer)
	add("web", "When the first certificate in the web configuration expires.", s.Web)
	return all
}

func (all metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, m := range all {
		ch <- m.expiry
		ch <- m.lifetime
	}
}

func (all metrics) Collect(ch chan<- prometheus.Metric) {
	for _, m := range all {
		c := m.read()
		if c == nil {
			continue
		}
		ch <- prometheus.MustNewConstMetric(m.expiry, prometheus.GaugeValue, float64(c.NotAfter.Unix()))
		ch <- prometheus.MustNewConstMetric(m.lifetime, prometheus.GaugeValue, c.NotAfter.Sub(c.NotBefore).Seconds())
	}
}
