package staleness

import (
	"errors"
	"fmt"
	"time"

	"github.com/clustermutex/unlocker/pkg/metadata"
)

// Policy is what the operator configured. It belongs to the unlocker, not to the records, so a change applies at once
// to locks that are already held.
type Policy struct {
	// ClockSkew is how far the clocks of two machines may differ. For removal, a deadline counts only once it has
	// passed by this much.
	ClockSkew time.Duration
	// MinWarning is how long an unlocker must itself have seen a lock as alerting or expired, without a gap, before it
	// removes the lock. It must exceed the largest retry delay of the holders by 5 s, because it is the time they get
	// to extend after an outage, less an interruption too short for an unlocker to notice.
	MinWarning time.Duration
	// DefaultAlertAfter is when a lock without a readable alert_at alerts, counted from when it was first seen; 0 =
	// never.
	DefaultAlertAfter time.Duration
	// DefaultAutoUnlockAfter is the deadline of a lock without a readable auto_unlock_at, counted from when it was
	// first seen; 0 = never.
	DefaultAutoUnlockAfter time.Duration
	// UnlockAbandoned removes a lock whose holder is proven to have ended without waiting for its deadline.
	UnlockAbandoned bool
	// AbandonedGrace is how long an unlocker must have known that proof before it does so.
	AbandonedGrace time.Duration
	// LockDelay is how long no client may take the lock after a hold is ended by force or because of its deadline, if
	// its record does not say; 0 = no delay.
	LockDelay time.Duration
}

// DefaultPolicy returns the policy that applies unless configured otherwise.
func DefaultPolicy() Policy {
	return Policy{ClockSkew: 5 * time.Second, MinWarning: 30 * time.Second, DefaultAlertAfter: time.Hour,
		AbandonedGrace: 10 * time.Second}
}

// Check returns an error if the policy is invalid.
func (p Policy) Check() error {
	for _, d := range []struct {
		name  string
		value time.Duration
	}{
		{"the clock skew", p.ClockSkew}, {"the default alert time", p.DefaultAlertAfter},
		{"the default auto-unlock time", p.DefaultAutoUnlockAfter}, {"the grace of abandoned locks", p.AbandonedGrace},
	} {
		if d.value < 0 {
			return fmt.Errorf("%s is negative: %v", d.name, d.value)
		}
	}
	switch err := metadata.CheckLockDelay(p.LockDelay); {
	case err != nil:
		return err
	case p.MinWarning <= 0:
		return fmt.Errorf("the minimum warning time is %v: it must be longer than the holders' largest retry delay",
			p.MinWarning)
	case p.DefaultAutoUnlockAfter > 0 && p.DefaultAlertAfter == 0:
		return errors.New("locks without readable deadlines would be removed without an alert: set a default alert " +
			"time, too")
	case p.DefaultAutoUnlockAfter > 0 && p.DefaultAutoUnlockAfter < p.DefaultAlertAfter:
		return fmt.Errorf("the default auto-unlock time %v is shorter than the default alert time %v",
			p.DefaultAutoUnlockAfter, p.DefaultAlertAfter)
	}
	return nil
}

// ToPresence returns the policy as an unlocker's presence record announces it, with the names that the unlocker
// excludes.
func (p Policy) ToPresence(exclude []string) *metadata.RemovalPolicy {
	s := &metadata.RemovalPolicy{
		ClockSkew: metadata.Seconds(p.ClockSkew), MinWarning: metadata.Seconds(p.MinWarning),
		DefaultAlertAfter:      metadata.Seconds(p.DefaultAlertAfter),
		DefaultAutoUnlockAfter: metadata.Seconds(p.DefaultAutoUnlockAfter),
		Abandoned:              metadata.AbandonedReport, AbandonedGrace: metadata.Seconds(p.AbandonedGrace),
		LockDelay: metadata.Seconds(p.LockDelay), Exclude: append([]string{}, exclude...),
	}
	if p.UnlockAbandoned {
		s.Abandoned = metadata.AbandonedUnlock
	}
	return s
}

// FromPresence returns the policy that an unlocker announced; ok is false if it announced no valid one.
func FromPresence(s *metadata.RemovalPolicy) (p Policy, ok bool) {
	if s == nil {
		return Policy{}, false
	}
	p = Policy{
		ClockSkew: time.Duration(s.ClockSkew), MinWarning: time.Duration(s.MinWarning),
		DefaultAlertAfter:      time.Duration(s.DefaultAlertAfter),
		DefaultAutoUnlockAfter: time.Duration(s.DefaultAutoUnlockAfter),
		UnlockAbandoned:        s.Abandoned == metadata.AbandonedUnlock,
		AbandonedGrace:         time.Duration(s.AbandonedGrace), LockDelay: time.Duration(s.LockDelay),
	}
	if p.Check() != nil {
		return Policy{}, false
	}
	return p, true
}
