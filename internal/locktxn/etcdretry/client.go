// Package etcdretry is a client of etcd that repeats requests until their outcome is known: through lost answers,
// members that hang, long outages and watches that break.
package etcdretry

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Options are what all requests of a [Client] have in common.
type Options struct {
	// AttemptTimeout is the longest that one attempt waits for an answer, before the next one goes to another member.
	AttemptTimeout time.Duration

	// Closed is the cause of contexts that end because the owner of the client closes, see [Ended]; it may be nil.
	Closed error

	// Answered and Unanswered are called after each attempt, with the time when it was sent. They may be nil.
	Answered   func()
	Unanswered func(sent time.Time, err error)
}

// Client sends requests to etcd. It is safe for concurrent use.
type Client struct {
	etcd *clientv3.Client
	opts Options

	streams     atomic.Int64 // which of etcd's watch streams to use, see follow
	began       time.Time
	reconnected atomic.Int64 // when, in nanoseconds since it began

	acquiring, releasing *group
}

// New returns a client that uses etcd, which stays the caller's.
func New(etcd *clientv3.Client, o Options) *Client {
	if o.Answered == nil {
		o.Answered = func() {}
	}
	if o.Unanswered == nil {
		o.Unanswered = func(time.Time, error) {}
	}
	return &Client{etcd: etcd, opts: o, began: time.Now(), acquiring: newGroup(etcd), releasing: newGroup(etcd)}
}

// leastAttempt is the shortest attempt, except where the caller's own deadline is sooner.
const leastAttempt = 100 * time.Millisecond

// Attempt is how long the next attempt may take: a third of the time left, so that a member that hangs leaves time for
// the others.
func (c *Client) Attempt(ctx context.Context) time.Duration {
	most := c.opts.AttemptTimeout
	if end, ok := ctx.Deadline(); ok {
		most = min(most, max(time.Until(end)/3, leastAttempt))
	}
	return most
}

// reconnect has gRPC try the connection again now. After a long outage it would wait up to two minutes by itself,
// unless the caller's etcd client was told otherwise: longer than unlockers wait for a holder that could not extend.
func (c *Client) reconnect() {
	last := c.reconnected.Load()
	now := int64(time.Since(c.began))
	if now-last < int64(MaxDelay/2) || !c.reconnected.CompareAndSwap(last, now) {
		return // another request has just done it
	}
	if conn := c.etcd.ActiveConnection(); conn != nil {
		conn.ResetConnectBackoff()
	}
}

// closed reports whether the etcd client is closed, so that no request can succeed.
func (c *Client) closed() bool { return c.etcd.Ctx().Err() != nil }

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
