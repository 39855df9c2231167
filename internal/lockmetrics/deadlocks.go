package lockmetrics

import "github.com/prometheus/client_golang/prometheus"

// maxDeadlocks is how many cycles have series of their own, oldest first. All are counted.
const maxDeadlocks = 20

// deadlocks exports the cycles of processes that wait for each other. Two cycles that look alike become one series,
// because a duplicate would fail the whole scrape.
func (c *Collector) deadlocks(ch chan<- prometheus.Metric) {
	if c.c.Deadlocks == nil {
		return
	}
	cycles := c.c.Deadlocks()
	taken := map[[2]string]bool{}
	gauge(ch, c.d.deadlocks, float64(len(cycles)))
	for _, cycle := range cycles[:min(len(cycles), maxDeadlocks)] {
		locks, holders := cycle.Labels()
		if key := [2]string{locks, holders}; !taken[key] {
			taken[key] = true
			instant(ch, c.d.deadlockSince, cycle.Since, locks, holders)
		}
	}
}
