package lockmetrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/clustermutex/unlocker/internal/text"
)

// unclaimed exports the locks that nobody takes although somebody waits. A lock whose label is already taken is left
// out: a duplicate series would fail the whole scrape.
func (c *Collector) unclaimed(ch chan<- prometheus.Metric) {
	if c.c.Unclaimed == nil {
		return
	}
	found, _ := c.c.Unclaimed()
	gauge(ch, c.d.unclaimed, float64(len(found)))
	if !c.c.Series.names() {
		return
	}
	taken := map[string]bool{}
	for _, l := range found[:min(len(found), c.c.SeriesLimit)] {
		if name := text.NameLabel(l.Name); !taken[name] {
			taken[name] = true
			instant(ch, c.d.unclaimedSince, l.Since, name, text.Label(l.First.Owner), text.Label(l.First.Hostname))
		}
	}
}
