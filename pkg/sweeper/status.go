package sweeper

import (
	"maps"
	"time"

	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

// Status is what a sweeper knows about itself, for people.
type Status struct {
	Mode     Mode
	States   map[staleness.State]int // locks, as of the last scan
	HeldBack map[staleness.Rule]int  // locks that are due, by the rule that holds them back
	DueSoon  int                     // locks due within a minute that would be removed
	SetAside int                     // locks whose removal failed so often that it is tried only now and then
	Brake    bool                    // this unlocker's removals are slowed down to one a second

	Writable  bool   // etcd took a write just now
	Fresh     bool   // the view is complete and fresh
	Forward   bool   // etcd did not go back, as far as this and the other unlockers that run know
	Failure   string // of the last write
	WallClock staleness.WallClock
	Offset    time.Duration // of the wall clock to the median of others'; positive = ours is ahead
	Revision  int64         // the highest seen

	ClockJumps int64

	SinceGap time.Duration // how long there was no gap
	GapCause string        // of the last gap
}

// Status tells how the sweeper is. It may be called at any time.
func (s *Sweeper) Status() Status {
	c, now := s.look()
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

// report keeps what is held back for the next presence record.
func (o *observer) report(heldBack []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.heldBack = heldBack
}

// allowedSince is since when the conditions allow what they allow now.
func (o *observer) allowedSince() time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.allowed
}
