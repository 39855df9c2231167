package lockmetrics

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

// How a hold ended, as values of a label.
const (
	endReleased   = "released"
	endAutoUnlock = "auto_unlock"
	endForced     = "forced"
)

// endings keeps what a scrape can not see: for how long the holds that ended had lasted, and which of them an unlocker ended.
// That one is a timestamp kept for a while: a counter that is born at 1 never shows an increase.
type endings struct {
	held      *prometheus.HistogramVec
	limit     int
	retention time.Duration

	mu      sync.Mutex
	removed map[removedLabels]removal
}

type removedLabels struct{ lock, owner, hostname string }

type removal struct {
	at   time.Time // as the unlocker that did it says
	seen time.Time
}

func newEndings(namespace string, limit int, retention time.Duration) *endings {
	e := &endings{limit: limit, retention: retention, removed: map[removedLabels]removal{}}
	e.held = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Namespace: namespace,
		Name:      "hold_seconds",
		Help:      "For how long locks were held, by how the hold ended.",
		Buckets:   []float64{.1, 1, 5, 15, 60, 300, 900, 3600, 4 * 3600, 24 * 3600, 7 * 24 * 3600},
	}, []string{"ended"})
	for _, ended := range []string{endReleased, endAutoUnlock, endForced} {
		e.held.WithLabelValues(ended)
	}
	return e
}

func (e *endings) add(r *metadata.Record, ending *metadata.Ending, now staleness.Moment) {
	ended := endReleased
	if ending != nil {
		ended = endForced
		if ending.Ended == metadata.EndedAutoUnlocked {
			ended = endAutoUnlock
			e.remember(r, ending, now.Wall)
		}
	}
	e.held.WithLabelValues(ended).Observe(lasted(r, now).Seconds())
}

// lasted is for how long r was held: since its holder took it or, where that can not be true, since it was seen.
func lasted(r *metadata.Record, now staleness.Moment) time.Duration {
	if d := now.Wall.Sub(r.LockedAt); !r.LockedAt.IsZero() && d >= 0 {
		return d
	}
	return max(0, now.Mono-r.Seen.First)
}

func (e *endings) remember(r *metadata.Record, ending *metadata.Ending, now time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.forget(now)
	labels := removedLabels{nameLabel(r.Name), label(r.Owner), label(r.Hostname)}
	if _, known := e.removed[labels]; !known && len(e.removed) >= e.limit {
		return
	}
	at := ending.EndedAt.Time
	if at.IsZero() {
		at = now
	}
	e.removed[labels] = removal{at: at, seen: now}
}

func (e *endings) forget(now time.Time) {
	for labels, r := range e.removed {
		if now.Sub(r.seen) >= e.retention {
			delete(e.removed, labels)
		}
	}
}

// removed shows the locks that an unlocker removed a while ago.
func (c *Collector) removed(ch chan<- prometheus.Metric, now time.Time) {
	c.e.mu.Lock()
	defer c.e.mu.Unlock()
	c.e.forget(now)
	for l, r := range c.e.removed {
		instant(ch, c.d.removedAt, r.at, l.lock, l.owner, l.hostname)
	}
}
