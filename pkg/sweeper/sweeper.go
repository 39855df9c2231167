package sweeper

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/clustermutex/unlocker/pkg/staleness"
)

// longestScanInterval bounds how late the start of an alert is noticed here; the metrics of states are computed at
// scrape.
const longestScanInterval = 5 * time.Second

// Sweeper is one unlocker's hand. Make it with [New].
type Sweeper struct {
	cfg      Config
	excluded func(lock string) bool
	observer *observer
	metrics  *metrics

	// Only the goroutine of the sweep touches these.
	nextScan time.Duration
	soon     queue            // what may be removed before the next scan is over
	spare    queue            // its memory for the next time
	due      dueQueue         // what may be removed now, as far as is known
	tried    map[string]tried // the few locks with an outcome that is worth remembering
	alerting map[string]int64 // the tokens of the locks that alert, so that the start of each is told once
	nextSlot time.Duration    // of the brake
	brake    bool

	mu    sync.Mutex
	found findings // of the last scan
}

// New joins a sweeper. It fails for what can not work, with a sentence for the operator.
func New(cfg Config) (*Sweeper, error) {
	if err := cfg.check(); err != nil {
		return nil, fmt.Errorf("sweeper: %w", err)
	}
	cfg.setDefaults()
	excluded, err := excluder(cfg.Exclude)
	if err != nil {
		return nil, fmt.Errorf("sweeper: %w", err)
	}
	s := &Sweeper{cfg: cfg, excluded: excluded, metrics: newMetrics(), tried: map[string]tried{}}
	s.observer = newObserver(&s.cfg)
	return s, nil
}

// Run sweeps until ctx ends, and returns nil after the removal in flight is finished. It is called once.
func (s *Sweeper) Run(ctx context.Context) error {
	var others sync.WaitGroup
	others.Go(func() { s.observer.run(ctx) })
	others.Go(func() { s.observer.askMembers(ctx) })
	s.sweep(ctx)
	others.Wait()
	return nil
}

// sweep scans now and then, and in between wakes up at exactly the moments at which removals become allowed.
func (s *Sweeper) sweep(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.observer.changed:
			s.nextScan = 0
		case <-timer.C:
		}
		if c, now := s.look(); now.Mono >= s.nextScan {
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

// scanInterval is at most half of the warning time. So a lock that changed after a scan can not become removable before
// the next one has seen it, and there is no need to follow every change.
func (s *Sweeper) scanInterval() time.Duration {
	return min(longestScanInterval, max(s.cfg.Policy.MinWarning/2, time.Second/4))
}

// look is the observer's, with what the operator wants.
func (s *Sweeper) look() (staleness.Conditions, staleness.Moment) {
	c, now := s.observer.look()
	c.AlertOnly, c.Excluded = s.cfg.Mode == AlertOnly, s.excluded
	return c, now
}

// pause is how long there is nothing to do.
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
