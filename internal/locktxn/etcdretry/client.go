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

	// ClosedCause is the cause of contexts that end because the owner of the client closes, see [ContextError]; it may
	// be nil.
	ClosedCause error

	// OnAnswer and OnNoAnswer are called after each attempt, with the time when it was sent. They may be nil.
	OnAnswer   func()
	OnNoAnswer func(sent time.Time, err error)
}

// Client sends requests to etcd. It is safe for concurrent use.
type Client struct {
	etcd      *clientv3.Client
	anyMember anymember.Client // the same client; asks another member if one refuses
	opts      Options

	streams     atomic.Int64 // number of the watch stream to use, see watchContext
	createdAt   time.Time
	reconnected atomic.Int64 // time of the last reconnect, in nanoseconds since createdAt

	acquiring, releasing *group
}

// New returns a client that uses etcd, which the caller closes.
func New(etcd *clientv3.Client, o Options) *Client {
	anyMember := anymember.NewClient(etcd)
	return &Client{
		etcd: etcd, anyMember: anyMember, opts: o,
		createdAt: time.Now().Add(-MaxBackoff), // so the first request that is not answered reconnects
		acquiring: newGroup(anyMember), releasing: newGroup(anyMember),
	}
}

// minAttempt is the minimum timeout of an attempt, unless the caller's own deadline is sooner.
const minAttempt = 100 * time.Millisecond

// AttemptTimeout returns the timeout of the next attempt: at most a third of the time left, so that a member that hangs
// leaves time for the others.
func (c *Client) AttemptTimeout(ctx context.Context) time.Duration {
	most := c.opts.AttemptTimeout
	if end, ok := ctx.Deadline(); ok {
		most = min(most, max(time.Until(end)/3, minAttempt))
	}
	return most
}

// reconnect makes gRPC try the connection again now. After a long outage gRPC waits up to two minutes by default:
// longer than unlockers wait for a holder that could not extend.
func (c *Client) reconnect() {
	last := c.reconnected.Load()
	now := int64(time.Since(c.createdAt))
	if now-last < int64(MaxBackoff/2) || !c.reconnected.CompareAndSwap(last, now) {
		return // another request has just done it
	}
	if conn := c.etcd.ActiveConnection(); conn != nil {
		conn.ResetConnectBackoff()
	}
}

// isClosed reports whether the etcd client is closed, so that no request can succeed.
func (c *Client) isClosed() bool { return c.etcd.Ctx().Err() != nil }

// MaxBackoff is the maximum pause between two attempts to reach etcd. An unlocker must warn for longer than this before
// it removes a lock, so that a live holder can extend first after an outage of etcd.
const MaxBackoff = 2 * time.Second

const firstBackoff = 20 * time.Millisecond

// Backoff returns the pause after an attempt, numbered from 0: it doubles, with jitter, so that clients that lost the
// same member do not return in step.
func Backoff(attempt int) time.Duration {
	d := MaxBackoff
	if attempt < 7 {
		d = min(d, firstBackoff<<attempt)
	}
	return Jitter(d)
}

// Jitter returns a random duration between d/2 and d.
func Jitter(d time.Duration) time.Duration { return d - rand.N(d/2+1) }

// Sleep waits for d. It returns false if ctx ends first.
func Sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// ContextError returns the error of a context that has ended, together with its cause if that says more. The cause
// closed is returned alone, because the caller did not end that context.
func ContextError(ctx context.Context, closed error) error {
	err := ctx.Err()
	cause := context.Cause(ctx)
	if errors.Is(cause, err) || cause == closed {
		return cause
	}
	return fmt.Errorf("%w: %w", err, cause)
}
