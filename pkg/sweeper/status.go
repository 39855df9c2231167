package sweeper

import (
	"maps"
	"time"

	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

// Status is the state of a sweeper, as its status page shows it.
type Status struct {
	Mode     Mode
	States   map[staleness.State]int // locks, as of the last scan
	HeldBack map[staleness.Rule]int  // locks that are due, by the rule that holds them back
	DueSoon  int                     // locks due within a minute that would be removed
	SetAside int                     // locks whose removal failed so often that it is retried only every few minutes
	Brake    bool                    // this unlocker removes only one lock a second

	Writable  bool   // etcd accepted a write within seconds
	Fresh     bool   // the view is complete and fresh
	Forward   bool   // etcd did not go back, as far as the running unlockers know
	Failure   string // why the last write failed
	WallClock staleness.WallClock
	Offset    time.Duration // of our wall clock to the median of the others'; positive = ours is ahead
	Revision  int64         // the highest seen

	ClockJumps int64

	SinceGap time.Duration // time since the last gap
	GapCause string        // of the last gap
}

// Status returns the current state. It may be called at any time.
func (s *Sweeper) Status() Status {
	c, now := s.conditions()
	s.mu.Lock()
	found := s.found
	s.mu.Unlock()
	o := s.observer
	o.mu.Lock()
	defer o.mu.Unlock()
	status := Status{
		Mode: s.cfg.Mode, States: maps.Clone(found.states), HeldBack: map[staleness.Rule]int{},
		DueSoon: found.dueSoon, SetAside: found.setAside, Brake: found.brake,
		Writable: c.Writable, Fresh: c.Fresh, Forward: c.Forward, Failure: text.Visible(o.canary.cause),
		WallClock: c.WallClock, Offset: o.offset, Revision: o.canary.revision, ClockJumps: o.jumps,
		SinceGap: now.Mono - c.LastGap, GapCause: o.gapCause,
	}
	for _, rule := range staleness.HoldBacks() {
		status.HeldBack[rule] = found.heldBack[rule]
	}
	return status
}

// report stores the rules that hold back removals, for the next presence record.
func (o *observer) report(heldBack []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.heldBack = heldBack
}

// allowedSince returns since when the conditions allow what they allow now.
func (o *observer) allowedSince() time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.allowed
}
