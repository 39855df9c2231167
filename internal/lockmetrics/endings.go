package lockmetrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

func holdBuckets() []float64 {
	return []float64{.1, 1, 5, 15, 60, 300, 900, 3600, 4 * 3600, 24 * 3600, 7 * 24 * 3600}
}

func newHoldSeconds(namespace string) *prometheus.HistogramVec {
	held := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Namespace: namespace,
		Name:      "hold_seconds",
		Help:      "How long locks were held, by how the hold ended.",
		Buckets:   holdBuckets(),
	}, []string{"ended"})
	for _, words := range metadata.Endings() {
		held.WithLabelValues(words.Word)
	}
	return held
}

// Taken records that somebody got a lock who had waited for it. It is meant to be called by the view.
func (c *Collector) Taken(r *metadata.Record, w metadata.Waiter) { c.byLock.taken(r, w) }

// Ended records the end of a hold; ending is nil if its holder released it. It is meant to be called by the view.
func (c *Collector) Ended(r *metadata.Record, ending *metadata.Ending) {
	now := staleness.Moment{Wall: c.c.Now(), Mono: c.c.Clock()}
	ended, after := endOf(r, ending), lasted(r, now)
	c.held.WithLabelValues(ended.Word).Observe(after.Seconds())
	if ended.Ended == metadata.EndedReleased || ended.Ended == metadata.EndedYielded {
		c.byLock.ended(r, after)
	}
}

// endOf is how the hold ended. What cannot be read was written by an operator's tool.
func endOf(r *metadata.Record, ending *metadata.Ending) metadata.EndingWords {
	if ending == nil {
		ending = new(metadata.Released(r, time.Time{}))
	}
	words, known := metadata.EndingOf(ending.Ended)
	if !known {
		words, _ = metadata.EndingOf(metadata.EndedForced)
	}
	return words
}

// lasted returns how long r was held: since its holder took it or, if that time is missing or in the future, since it
// was first seen.
func lasted(r *metadata.Record, now staleness.Moment) time.Duration {
	if d := now.Wall.Sub(r.LockedAt); !r.LockedAt.IsZero() && d >= 0 {
		return d
	}
	return max(0, now.Mono-r.Seen.First)
}
