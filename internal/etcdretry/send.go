package mutex

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/locktxn"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// MaxRetryDelay is the longest pause between two attempts to reach etcd. An unlocker must warn for longer than this
// before it removes a lock, so that after an outage of etcd a live holder gets to extend first.
const MaxRetryDelay = 2 * time.Second

const (
	firstRetryDelay = 20 * time.Millisecond
	// an attempt is not cut shorter than this, but for the caller's own deadline
	leastAttempt = 100 * time.Millisecond
	maxRefreshes = 5 // of an auth token, in a row
)

// outcome is what an error of a commit tells about the transaction.
type outcome int

const (
	unknown   outcome = iota // it may have been committed, or may be so later: only etcd can tell
	refused                  // it was not committed and will not be, however often it is sent
	postponed                // it was not committed, but may be when it is sent again
	full                     // etcd is out of space: it takes no more writes, but may have taken this last one
)

// judge is the one place that reads errors of commits. What is not known for certain to be a refusal is unknown.
func judge(err error) outcome {
	switch {
	case locktxn.Postponed(err):
		return postponed
	case locktxn.NoSpace(err):
		return full
	case locktxn.Refused(err):
		return refused
	}
	return unknown
}

// answer is what is known of a transaction after it was sent, once or several times.
type answer struct {
	*clientv3.TxnResponse // nil when there is none

	// doubt says that a sending before the last one ended without an answer: it may have been committed, or may be so
	// later.
	doubt bool
}

// keys is what the operation with this number read.
func (a answer) keys(op int) *clientv3.GetResponse {
	if op >= len(a.Responses) || a.Responses[op].GetResponseRange() == nil {
		return &clientv3.GetResponse{} // not from etcd
	}
	return (*clientv3.GetResponse)(a.Responses[op].GetResponseRange())
}

// record is the record that the operation with this number read.
func (c *Client) record(lock string, a answer, op int) metadata.Document {
	return metadata.Decode(lock, locktxn.Fields(c.layout, a.keys(op)))
}

// send commits txn, which must be harmless to repeat, and repeats it, byte for byte, until its outcome is known, it is
// refused or ctx ends. Attempts get a third of the time left, so that a member that hangs leaves time for the others.
func (c *Client) send(ctx context.Context, txn locktxn.Txn) (answer, error) {
	return c.sendFor(ctx, time.Duration(math.MaxInt64), txn)
}

// sendFor is send for so long at most. It is cheaper than a context that ends then, which only a second attempt needs.
func (c *Client) sendFor(ctx context.Context, most time.Duration, txn locktxn.Txn) (a answer, err error) {
	began := time.Now()
	var last error
	for n, refreshes := 0, 0; ; n++ {
		if n == 1 && most != math.MaxInt64 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithDeadline(ctx, began.Add(most))
			defer cancel()
		}
		if n > 0 && !pause(ctx, delay(n-1)) {
			return a, fmt.Errorf("etcd did not answer (%w): %w", last, ended(ctx))
		}
		if ctx.Err() != nil {
			return a, ended(ctx)
		}
		sent := time.Now()
		resp, err := c.once(ctx, min(c.slice(ctx), max(most/3, leastAttempt), most), txn)
		if err == nil {
			a.TxnResponse = resp
			c.answered()
			return a, nil
		}
		last = err
		switch judge(err) {
		case refused:
			return a, err
		case full:
			a.doubt = true
			return a, fmt.Errorf("etcd is out of space and takes no writes: %w", err)
		case postponed:
			if refreshes++; refreshes > maxRefreshes && !errors.Is(err, rpctypes.ErrTooManyRequests) {
				return a, err
			}
		case unknown:
			a.doubt = true
			refreshes = 0
			if ctx.Err() == nil {
				c.unanswered(sent, err)
			}
			c.reconnect()
			if c.etcd.Ctx().Err() != nil {
				return a, fmt.Errorf("the etcd client is closed: %w", err)
			}
		}
	}
}

// once is one attempt, of so long at most.
func (c *Client) once(ctx context.Context, most time.Duration, txn locktxn.Txn) (*clientv3.TxnResponse, error) {
	attempt, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	limit := time.AfterFunc(most, func() { cancel(context.DeadlineExceeded) })
	defer limit.Stop()
	resp, err := txn.Commit(private{attempt}, c.etcd)
	if err != nil && context.Cause(attempt) == context.DeadlineExceeded {
		err = context.DeadlineExceeded
	}
	return resp, err
}

// private is a context whose deadline etcd is not told of. It would be a header that is another one in every request,
// and a timer on the other side, for nothing: etcd has a limit of its own, and a request is cancelled there when it is
// given up here.
type private struct{ context.Context }

func (private) Deadline() (none time.Time, ok bool) { return none, false }

// reconnect has the connection to etcd tried again now. After a long outage gRPC would wait up to two minutes before it
// does that by itself, unless the caller's etcd client was told otherwise: longer than unlockers wait for a holder that
// could not extend.
func (c *Client) reconnect() {
	last := c.reconnected.Load()
	now := int64(time.Since(c.began))
	if now-last < int64(MaxRetryDelay/2) || !c.reconnected.CompareAndSwap(last, now) {
		return // another request has just done it
	}
	if conn := c.etcd.ActiveConnection(); conn != nil {
		conn.ResetConnectBackoff()
	}
}

// ended is why ctx ended: what errors.Is expects of a context, and the cause where that says more.
func ended(ctx context.Context) error {
	err := ctx.Err()
	cause := context.Cause(ctx)
	if errors.Is(cause, err) || cause == ErrClosed {
		return cause
	}
	return fmt.Errorf("%w: %w", err, cause)
}

// slice is how long the next attempt may take.
func (c *Client) slice(ctx context.Context) time.Duration {
	most := c.opts.AttemptTimeout
	if end, ok := ctx.Deadline(); ok {
		most = min(most, max(time.Until(end)/3, leastAttempt))
	}
	return most
}

// delay is the pause after the attempt with this number, from 0 on: doubling, with jitter, so that clients that lost
// the same member do not come back in step.
func delay(attempt int) time.Duration {
	d := MaxRetryDelay
	if attempt < 7 {
		d = min(d, firstRetryDelay<<attempt)
	}
	return jitter(d)
}

// jitter is a random duration between d/2 and d.
func jitter(d time.Duration) time.Duration { return d - rand.N(d/2+1) }

// pause waits and tells whether ctx let it.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
