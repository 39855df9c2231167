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

// metrics is a prometheus.Collector.
type metrics []metric

type metric struct {
	read             func() *x509.Certificate
	expiry, lifetime *prometheus.Desc
}

// NewMetrics returns <namespace>_etcd_client_certificate_expiry_timestamp_seconds and its like.
func NewMetrics(namespace string, s Sources) prometheus.Collector {
	d := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc(namespace+"_"+name, help, nil, nil)
	}
	var all metrics
	for _, m := range []metric{
		{s.EtcdClient, d("etcd_client_certificate_expiry_timestamp_seconds",
			"When the first certificate in the file of --etcd.cert expires."),
			d("etcd_client_certificate_lifetime_seconds", "Lifetime of that certificate.")},
		{s.EtcdServer, d("etcd_server_certificate_expiry_timestamp_seconds",
			"When the first certificate of etcd's members, or of their chains, expires."),
			d("etcd_server_certificate_lifetime_seconds", "Lifetime of that certificate.")},
		{s.Web, d("web_certificate_expiry_timestamp_seconds",
			"When the first certificate in the web configuration expires."),
			d("web_certificate_lifetime_seconds", "Lifetime of that certificate.")},
	} {
		if m.read != nil {
			all = append(all, m)
		}
	}
	return all
}

// Describe implements prometheus.Collector.
func (all metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, m := range all {
		ch <- m.expiry
		ch <- m.lifetime
	}
}

// Collect implements prometheus.Collector.
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
