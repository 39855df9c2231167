package sweeper

import (
	"time"

	"github.com/clustermutex/unlocker/pkg/staleness"
)

// The brake engages if more than half of all locks, and more than brakeAbove, are due within brakeWithin: a clock, a
// deployment or a disaster must be the cause. It lets through one removal per brakeEvery, and so never stops them.
const (
	brakeAbove  = 20
	brakeWithin = time.Minute
	brakeEvery  = time.Second
)

type brake struct {
	on   bool
	next time.Duration // when it lets through the next removal
}

// engageBrake switches the brake on or off, as a scan has found.
func (s *Sweeper) engageBrake(f *findings, locks int) {
	f.brake = f.dueSoon > brakeAbove && 2*f.dueSoon > locks
	if f.brake {
		f.heldBack[staleness.RuleBrake] = f.heldBack[""]
	}
	if f.brake != s.brake.on {
		s.cfg.Log.Error().Bool("on", f.brake).Int("due", f.dueSoon).Int("locks", locks).
			Msg("brake: while most locks are due within a minute, this unlocker removes them slowly")
	}
	s.brake.on = f.brake
}

// limits returns how many locks a batch may have, and how many batches may be in flight at once.
func (b brake) limits() (size, pending int) {
	if b.on {
		return 1, 1
	}
	return maxBatch, maxPendingCommits
}
