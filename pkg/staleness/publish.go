package staleness

import (
	"time"

	"github.com/clustermutex/unlocker/pkg/metadata"
)

// Publish returns the policy as an unlocker's presence record announces it, with the names that the unlocker excludes.
func (p Policy) Publish(exclude []string) *metadata.Sweep {
	s := &metadata.Sweep{
		ClockSkew: metadata.Seconds(p.ClockSkew), MinWarning: metadata.Seconds(p.MinWarning),
		DefaultAlertAfter:      metadata.Seconds(p.DefaultAlertAfter),
		DefaultAutoUnlockAfter: metadata.Seconds(p.DefaultAutoUnlockAfter),
		Abandoned:              metadata.SweepReport, AbandonedGrace: metadata.Seconds(p.AbandonedGrace),
		LockDelay: metadata.Seconds(p.LockDelay), Exclude: append([]string{}, exclude...),
	}
	if p.UnlockAbandoned {
		s.Abandoned = metadata.SweepUnlock
	}
	return s
}

// Published returns the policy that an unlocker announced; ok is false if it announced none that can be followed.
func Published(s *metadata.Sweep) (p Policy, ok bool) {
	if s == nil {
		return Policy{}, false
	}
	p = Policy{
		ClockSkew: time.Duration(s.ClockSkew), MinWarning: time.Duration(s.MinWarning),
		DefaultAlertAfter:      time.Duration(s.DefaultAlertAfter),
		DefaultAutoUnlockAfter: time.Duration(s.DefaultAutoUnlockAfter),
		UnlockAbandoned:        s.Abandoned == metadata.SweepUnlock,
		AbandonedGrace:         time.Duration(s.AbandonedGrace), LockDelay: time.Duration(s.LockDelay),
	}
	if p.Check() != nil {
		return Policy{}, false
	}
	return p, true
}
