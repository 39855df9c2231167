package sweeper

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

// maxScanInterval bounds how late the start of an alert is logged; the metrics of states are computed at scrape.
const maxScanInterval = 5 * time.Second

// Sweeper removes stale locks for one unlocker. Make it with [New].
type Sweeper struct {
	cfg      Config
	excluded func(lock string) bool
	observer *observer
	metrics  *metrics

	// Only the goroutine of the sweep touches these.
	nextScan time.Duration
	soon     queue            // what may become removable before the end of the next scan
	recycled queue            // the memory of soon's predecessor
	due      dueQueue         // what may be removable now
	scanning bool             // a scan is running, whose candidates will replace soon and due
	retries  []candidate      // what was queued again during the scan
	tried    map[string]tried // by lock: outcomes worth remembering
	alerting map[string]int64 // by lock: the tokens of alerting holds, so that each is logged once
	flying   []flight         // batches of removals, oldest first
	pace     pace
	nextSlot time.Duration // of the brake
	brake    bool

	arrived chan struct{} // receives a value when something was added to deaths

	mu     sync.Mutex
	found  findings // of the last scan
	deaths []string // locks whose holder was proven dead since the sweep looked last
}

// New returns a sweeper. It fails, with a sentence for the operator, if the configuration is invalid.
func New(cfg Config) (*Sweeper, error) {
	if err := cfg.check(); err != nil {
		return nil, fmt.Errorf("sweeper: %w", err)
	}
	cfg.setDefaults()
	excluded, err := excluder(cfg.Exclude)
	if err != nil {
		return nil, fmt.Errorf("sweeper: %w", err)
	}
	s := &Sweeper{cfg: cfg, excluded: excluded, tried: map[string]tried{}, pace: pace{maxBatch},
		metrics: newMetrics(text.NewAttributes(cfg.Attributes)),
		arrived: make(chan struct{}, 1)}
	s.observer = newObserver(&s.cfg)
	return s, nil
}

// Run sweeps until ctx ends, finishes the removal in flight and returns nil. It is called once.
func (s *Sweeper) Run(ctx context.Context) error {
	var background sync.WaitGroup
	background.Go(func() { s.observer.run(ctx) })
	background.Go(func() { s.observer.measureMembers(ctx) })
	s.sweep(ctx)
	background.Wait()
	return nil
}

// sweep scans every few seconds, and in between wakes up exactly when removals become allowed.
func (s *Sweeper) sweep(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.observer.changed:
			s.nextScan = 0
		case <-s.arrived:
			s.lookAtDeaths()
		case <-timer.C:
		}
		if c, now := s.conditions(); now.Mono >= s.nextScan {
			s.nextScan = now.Mono + s.scanInterval()
			s.scan(ctx, c, now)
			s.removeDue(ctx)
			s.removeTickets(ctx)
		} else {
			s.removeDue(ctx)
		}
		timer.Reset(s.pause())
	}
}

// scanInterval is at most half of the minimum warning. So a lock that changes after a scan cannot become removable
// before the next scan has seen it, and there is no need to follow every change.
func (s *Sweeper) scanInterval() time.Duration {
	return min(maxScanInterval, max(s.cfg.Policy.MinWarning/2, time.Second/4))
}

// conditions returns what the observer sees and the operator configured.
func (s *Sweeper) conditions() (staleness.Conditions, staleness.Moment) {
	c, now := s.observer.observe()
	c.AlertOnly = s.cfg.Mode == AlertOnly
	c.Excluded = s.excluded
	return c, now
}

// pause returns how long to sleep until there is something to do.
func (s *Sweeper) pause() time.Duration {
	due := staleness.Never
	switch {
	case s.due.Len() > 0:
		due = 0
	case s.soon.Len() > 0:
		due = s.soon[0].at
	}
	if s.brake {
		due = max(due, s.nextSlot)
	}
	return max(0, min(s.nextScan, due)-s.cfg.Clock())
}
