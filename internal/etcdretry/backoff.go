package etcdretry

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// MaxDelay is the longest pause between two attempts to reach etcd.
const MaxDelay = 2 * time.Second

const firstDelay = 20 * time.Millisecond

// Delay is the pause after the attempt with this number, from 0 on: doubling, with jitter, so that clients that lost
// the same member do not come back in step.
func Delay(attempt int) time.Duration {
	d := MaxDelay
	if attempt < 7 {
		d = min(d, firstDelay<<attempt)
	}
	return Jitter(d)
}

// Jitter is a random duration between d/2 and d.
func Jitter(d time.Duration) time.Duration { return d - rand.N(d/2+1) }

// Pause waits and reports whether ctx let it.
func Pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// Ended is why ctx ended: what errors.Is expects of a context, with the cause where that says more. The cause closed is
// returned alone, because it is not the caller who ended that context.
func Ended(ctx context.Context, closed error) error {
	err := ctx.Err()
	cause := context.Cause(ctx)
	if errors.Is(cause, err) || cause == closed {
		return cause
	}
	return fmt.Errorf("%w: %w", err, cause)
}
