// Package sweeper removes locks whose holders are gone, and nothing else.
//
// A [Sweeper] gets what it needs as functions: the held locks, a clock, the freshness of the view, how to announce
// itself, and how to remove locks. [Sweeper.Run] does three things concurrently:
//
//   - It observes itself. Every second it writes its presence to etcd, which proves that holders can write, too. It
//     compares its wall clock with those of the other unlockers and of etcd's members. It also remembers the last gap:
//     the last moment at which it may have missed what holders did.
//   - It scans all locks every few seconds, to learn which ones can become due before the next scan.
//   - It sleeps until package staleness allows the next removal, and removes locks in guarded batches, oldest first. It
//     decides again before each batch.
//
// Any number of sweepers may run concurrently: the guards of the transaction let exactly one of them remove a lock. A
// restart loses nothing: it counts as a gap.
//
// Its API is for our own programs and may change in any version.
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

// scanShare is how many times the duration of a scan must pass before the next one that a death causes.
const scanShare = 10

// Sweeper removes stale locks for one unlocker. Make it with [New].
type Sweeper struct {
	cfg      Config
	excluded func(lock string) bool
	observer *observer
	metrics  *metrics

	// Only the goroutine of the sweep touches these.
	nextScan time.Duration
	mayScan  time.Duration             // when a scan may follow the last one, because a holder was proven dead
	soon     []candidate               // locks that may become removable before the next scan ends, by that moment
	due      []candidate               // those whose moment has come, by deadline
	attempts map[string]removalAttempt // by lock: outcomes worth remembering
	alerting map[string]int64          // by lock: the tokens of alerting holds, so that each is logged once
	pending  []pendingCommit           // batches of removals, oldest first
	brake    brake

	died chan struct{} // receives a value when a holder was proven dead

	mu       sync.Mutex
	heldBack map[staleness.Rule]int // locks that are due, of the last scan
}

// New returns a sweeper. If the configuration is invalid, the error says so in a sentence for the operator.
func New(cfg Config) (*Sweeper, error) {
	if err := cfg.check(); err != nil {
		return nil, fmt.Errorf("sweeper: %w", err)
	}
	s := &Sweeper{cfg: cfg, excluded: text.Globs(cfg.Exclude).Match, attempts: map[string]removalAttempt{},
		metrics: newMetrics(&cfg), died: make(chan struct{}, 1)}
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
		case <-s.died:
			s.nextScan = min(s.nextScan, s.mayScan)
		case <-timer.C:
		}
		if c, now := s.conditions(); now.Mono >= s.nextScan {
			s.nextScan = now.Mono + s.scanInterval()
			s.scan(c, now)
			s.mayScan = now.Mono + scanShare*(s.cfg.Clock()-now.Mono)
			s.removeDue(ctx)
			s.removeTickets(ctx)
		} else {
			s.removeDue(ctx)
		}
		timer.Reset(s.untilNext())
	}
}

// HolderDied reports that a holder is now proven to have ended, so that the next scan is earlier. It does not block.
func (s *Sweeper) HolderDied() {
	select {
	case s.died <- struct{}{}:
	default:
	}
}

// scanInterval returns at most half of the minimum warning, so that a lock that changes after a scan cannot become
// removable before the next scan sees it: the sweeper need not follow every change.
func (s *Sweeper) scanInterval() time.Duration {
	return min(maxScanInterval, max(s.cfg.Policy.MinWarning/2, time.Second/4))
}

// conditions combines what the observer sees with what the operator configured.
func (s *Sweeper) conditions() (staleness.Conditions, staleness.Moment) {
	c, now := s.observer.observe()
	c.AlertOnly = s.cfg.Mode == AlertOnly
	c.Excluded = s.excluded
	return c, now
}

// untilNext returns how long to sleep until there is something to do.
func (s *Sweeper) untilNext() time.Duration {
	due := staleness.Never
	switch {
	case len(s.due) > 0:
		due = 0
	case len(s.soon) > 0:
		due = s.soon[0].at
	}
	if s.brake.on {
		due = max(due, s.brake.next)
	}
	return max(0, min(s.nextScan, due)-s.cfg.Clock())
}

// Status is the state of a sweeper.
type Status struct {
	HeldBack   map[staleness.Rule]int // locks that are due, by the rule that holds them back
	WallClock  staleness.ClockStatus
	Offset     time.Duration // our wall clock minus the median of the others
	ClockJumps int64
}

// Status returns the current state. It may be called at any time.
func (s *Sweeper) Status() Status {
	c, _ := s.conditions()
	s.mu.Lock()
	heldBack := s.heldBack
	s.mu.Unlock()
	o := s.observer
	o.mu.Lock()
	defer o.mu.Unlock()
	status := Status{
		HeldBack: map[staleness.Rule]int{}, WallClock: c.WallClock, Offset: o.offset, ClockJumps: o.jumps,
	}
	for _, rule := range staleness.HeldBackRules() {
		status.HeldBack[rule] = heldBack[rule]
	}
	return status
}

// allowedSince returns since when the conditions have allowed what they allow now.
func (o *observer) allowedSince() time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.allowed
}
