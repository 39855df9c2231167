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

	"github.com/clustermutex/unlocker/internal/etcdconn/anymember"
)

// Options apply to all requests of a [Client].
type Options struct {
	// AttemptTimeout is how long an attempt waits for an answer before the next one goes to another member.
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
	asks anymember.Client // the same
	opts Options

	streams     atomic.Int64 // which of etcd's watch streams to use, see follow
	began       time.Time
	reconnected atomic.Int64 // when, in nanoseconds since it began

	acquiring, releasing *group
}

// New returns a client that uses etcd, which the caller closes.
func New(etcd *clientv3.Client, o Options) *Client {
	if o.Answered == nil {
		o.Answered = func() {}
	}
	if o.Unanswered == nil {
		o.Unanswered = func(time.Time, error) {}
	}
	asks := anymember.Of(etcd)
	begin := time.Now().Add(-MaxDelay) // so the first request that is not answered reconnects
	return &Client{etcd: etcd, asks: asks, opts: o, began: begin, acquiring: newGroup(asks), releasing: newGroup(asks)}
}

// leastAttempt is the shortest attempt, unless the caller's own deadline is sooner.
const leastAttempt = 100 * time.Millisecond

// Attempt returns how long the next attempt may take: at most a third of the time left, so that a member that hangs
// leaves time for the others.
func (c *Client) Attempt(ctx context.Context) time.Duration {
	most := c.opts.AttemptTimeout
	if end, ok := ctx.Deadline(); ok {
		most = min(most, max(time.Until(end)/3, leastAttempt))
	}
	return most
}

// reconnect makes gRPC try the connection again now. After a long outage gRPC waits up to two minutes by default:
// longer than unlockers wait for a holder that could not extend.
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

// MaxDelay is the longest pause between two attempts to reach etcd. An unlocker must warn for longer than this before
// it removes a lock, so that a live holder can extend first after an outage of etcd.
const MaxDelay = 2 * time.Second

const firstDelay = 20 * time.Millisecond

// Delay returns the pause after an attempt, numbered from 0: it doubles, with jitter, so that clients that lost the
// same member do not return in step.
func Delay(attempt int) time.Duration {
	d := MaxDelay
	if attempt < 7 {
		d = min(d, firstDelay<<attempt)
	}
	return Jitter(d)
}

// Jitter returns a random duration between d/2 and d.
func Jitter(d time.Duration) time.Duration { return d - rand.N(d/2+1) }

// Pause waits for d. It reports false if ctx ends first.
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

// Ended returns why ctx ended: its error, for errors.Is, with the cause if that says more. The cause closed is returned
// alone, because the caller did not end that context.
func Ended(ctx context.Context, closed error) error {
	err := ctx.Err()
	cause := context.Cause(ctx)
	if errors.Is(cause, err) || cause == closed {
		return cause
	}
	return fmt.Errorf("%w: %w", err, cause)
}
