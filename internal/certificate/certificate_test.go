package certificate_test

import (
	"crypto/x509"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/clustermutex/unlocker/internal/certificate"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

func TestWarningIsInTimeToRenew(t *testing.T) {
	const day = 24 * time.Hour
	now := time.Date(2026, 11, 28, 14, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		life, left time.Duration
		says       string
	}{
		{90 * day, 14 * day, ""},
		{90 * day, 14*day - time.Second, "it expires at 2026-12-12 13:59:59 UTC"},
		{3 * day, day, ""},
		{3 * day, day - time.Second, "it expires at 2026-11-29 13:59:59 UTC"},
		{90 * day, -day, "it expired at 2026-11-27 14:00:00 UTC"},
	} {
		one := &x509.Certificate{NotAfter: now.Add(c.left), NotBefore: now.Add(c.left - c.life)}
		if said := certificate.Warning("it", one, now); said != c.says {
			t.Errorf("life %v, left %v: %q, want %q", c.life, c.left, said, c.says)
		}
	}
}

func TestMetricsFollowTheFile(t *testing.T) {
	t.Parallel()
	ca := proctest.NewCA(t)
	file := filepath.Join(t.TempDir(), "chain.pem")
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(certificate.NewMetrics("p", certificate.Sources{
		Web:        func() *x509.Certificate { return certificate.ReadFile(file) },
		EtcdServer: func() *x509.Certificate { return nil },
	}))
	samples := func() map[string]float64 {
		all, err := registry.Gather()
		proctest.Must(t, err)
		found := map[string]float64{}
		for _, f := range all {
			found[f.GetName()] = f.GetMetric()[0].GetGauge().GetValue()
		}
		return found
	}
	if got := samples(); len(got) != 0 {
		t.Errorf("without a certificate: %v", got)
	}
	for _, until := range []time.Time{time.Now().Add(time.Hour), time.Now().Add(2 * time.Hour)} {
		cert, key := ca.Issue(t, "leaf", until)
		var chain []byte
		for _, part := range []string{key, ca.File(), cert} {
			text, err := os.ReadFile(part)
			proctest.Must(t, err)
			chain = append(chain, text...)
		}
		proctest.Must(t, os.WriteFile(file, chain, 0o600))
		got := samples()
		if life := got["p_web_certificate_lifetime_seconds"]; len(got) != 2 || life < 3600 ||
			got["p_web_certificate_expiry_timestamp_seconds"] != float64(until.Unix()) {
			t.Errorf("a chain that ends at %d: %v", until.Unix(), got)
		}
	}
}
