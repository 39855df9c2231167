package lockmetrics_test

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"

	"github.com/clustermutex/unlocker/internal/lockmetrics"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

// manyLocks are n locks of which 1000, spread evenly, are alerting.
func manyLocks(n int) []*metadata.Record {
	locks := make([]*metadata.Record, n)
	for i := range locks {
		alert := time.Duration(i+1) * time.Second
		if i%(n/1000) == 0 {
			alert = -time.Duration((i*7919)%n+1) * time.Millisecond
		}
		locks[i] = lock(fmt.Sprintf("billing/invoice/%06d", i), alert)
		locks[i].Hostname = fmt.Sprintf("worker-%03d.eu-west-1.example.com", i%500)
	}
	return locks
}

// BenchmarkScrape is a whole scrape in the text format: 100,000 locks, of which 1000 are alerting, take at most 50 ms
// and 1 MB.
func BenchmarkScrape(b *testing.B) {
	for _, n := range []int{10_000, 100_000, 1_000_000} {
		for _, mode := range []lockmetrics.Series{lockmetrics.SeriesAlerting, lockmetrics.SeriesAll} {
			b.Run(fmt.Sprintf("locks=%d/series=%s", n, mode), func(b *testing.B) {
				w := newWorld(manyLocks(n)...)
				config := w.config()
				survey := w.survey(staleness.Moment{Wall: w.now, Mono: w.mono}) // as a view remembers it
				config.Survey = func(staleness.Moment) staleness.Survey { return survey }
				config.Series = mode
				registry := prometheus.NewRegistry()
				registry.MustRegister(lockmetrics.New(config))
				var answer bytes.Buffer
				for b.Loop() {
					answer.Reset()
					scrape(b, registry, &answer)
				}
				b.ReportMetric(float64(answer.Len()), "bytes/scrape")
			})
		}
	}
}

func scrape(b *testing.B, registry *prometheus.Registry, answer *bytes.Buffer) {
	families, err := registry.Gather()
	if err != nil {
		b.Fatal(err)
	}
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(answer, f); err != nil {
			b.Fatal(err)
		}
	}
}
