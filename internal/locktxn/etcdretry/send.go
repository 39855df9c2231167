package etcdretry

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/connectivity"

	"github.com/clustermutex/unlocker/internal/locktxn"
)

// maxRefreshes is how many auth tokens in a row may be refused before the error is returned.
const maxRefreshes = 5

// Response is etcd's answer to a transaction that was sent once or several times.
type Response struct {
	*clientv3.TxnResponse // nil if there is no answer

	// Indeterminate reports whether an earlier send ended without an answer: it may have been committed, or may yet be.
	Indeterminate bool
}

// Keys returns the keys that operation op read.
func (a Response) Keys(op int) *clientv3.GetResponse { return locktxn.Keys(a.TxnResponse, op) }

// Send commits txn, which must be safe to repeat, and repeats it, byte for byte, until its outcome is known, it is
// refused or ctx ends.
func (c *Client) Send(ctx context.Context, txn locktxn.Txn) (Response, error) {
	return c.SendFor(ctx, time.Duration(math.MaxInt64), txn)
}

// SendFor is Send with a time limit. It is cheaper than a context with a deadline, which only a second attempt needs.
func (c *Client) SendFor(ctx context.Context, limit time.Duration, txn locktxn.Txn) (Response, error) {
	return c.repeat(ctx, limit, func(ctx context.Context, timeout time.Duration) (*clientv3.TxnResponse, error) {
		return c.commit(ctx, timeout, txn)
	})
}

// repeat makes attempts until one is answered or refused, or the time is over.
func (c *Client) repeat(ctx context.Context, limit time.Duration,
	attempt func(ctx context.Context, timeout time.Duration) (*clientv3.TxnResponse, error)) (Response, error) {
	began := time.Now()
	var s sendState
	for n := 0; ; n++ {
		if n == 1 && limit != math.MaxInt64 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithDeadline(ctx, began.Add(limit))
			defer cancel()
		}
		if n > 0 && (!Sleep(ctx, Backoff(n-1)) || ctx.Err() != nil) {
			return s.response, c.NoAnswerError(ctx, s.lastErr)
		}
		if ctx.Err() != nil {
			return s.response, ContextError(ctx, c.opts.ClosedCause)
		}
		sent := time.Now()
		resp, err := attempt(ctx, min(c.AttemptTimeout(ctx), max(limit/3, minAttempt), limit))
		if err == nil {
			s.response.TxnResponse = resp
			if c.opts.OnAnswer != nil {
				c.opts.OnAnswer()
			}
			return s.response, nil
		}
		if err := c.noteFailure(ctx, &s, sent, err); err != nil {
			return s.response, err
		}
	}
}

// sendState is what the attempts so far have led to.
type sendState struct {
	response  Response
	lastErr   error
	refreshes int // of the auth token, in a row
}

// noteFailure adds a failed attempt to s. It returns an error if no other attempt can help: a refusal is final, and an
// etcd that is out of space takes no more writes, but may have committed this one.
func (c *Client) noteFailure(ctx context.Context, s *sendState, sent time.Time, err error) error {
	if ctx.Err() == nil || s.lastErr == nil { // else the end of ctx cut it short, which says less
		s.lastErr = err
	}
	switch {
	case locktxn.IsPostponed(err):
		s.refreshes++
		if s.refreshes > maxRefreshes && !locktxn.MemberRefused(err) {
			return err
		}
	case locktxn.IsNoSpace(err):
		s.response.Indeterminate = true
		return fmt.Errorf("etcd is out of space and takes no writes: %w", err)
	case locktxn.IsRefused(err):
		return err
	default:
		s.response.Indeterminate = true
		s.refreshes = 0
		if ctx.Err() == nil && c.opts.OnNoAnswer != nil {
			c.opts.OnNoAnswer(sent, err)
		}
		c.reconnect()
		if c.isClosed() {
			return fmt.Errorf("the etcd client is closed: %w", err)
		}
	}
	return nil
}

// commit makes one attempt.
func (c *Client) commit(ctx context.Context, timeout time.Duration, txn locktxn.Txn) (*clientv3.TxnResponse, error) {
	attempt, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	timer := time.AfterFunc(timeout, func() { cancel(context.DeadlineExceeded) })
	defer timer.Stop()
	resp, err := c.send(withoutDeadline{attempt}, txn)
	if err != nil && context.Cause(attempt) == context.DeadlineExceeded {
		err = context.DeadlineExceeded
	}
	return resp, err
}

// send sends one transaction, perhaps in a request with others.
func (c *Client) send(ctx context.Context, txn locktxn.Txn) (*clientv3.TxnResponse, error) {
	if txn.OnlyRecord == "" {
		return txn.Commit(ctx, c.anyMember)
	}
	return c.commitGrouped(ctx, txn)
}

// withoutDeadline is a context that hides its deadline, so that it is not sent to etcd. It would cost a header that
// differs in every request, and a timer in etcd, for nothing: etcd has its own limit, and a request is cancelled there
// when it is given up here.
type withoutDeadline struct{ context.Context }

func (withoutDeadline) Deadline() (none time.Time, ok bool) { return none, false }

// NoAnswerError returns the error for a request whose ctx ended before there was an answer; last is that of an attempt.
func (c *Client) NoAnswerError(ctx context.Context, last error) error {
	ended := ContextError(ctx, c.opts.ClosedCause)
	conn := c.etcd.ActiveConnection()
	switch {
	case !errors.Is(last, context.DeadlineExceeded) && !errors.Is(last, context.Canceled):
		return fmt.Errorf("etcd did not answer (%w): %w", last, ended)
	case conn != nil && conn.GetState() != connectivity.Ready:
		return fmt.Errorf("there is no connection to etcd at %s: %w", strings.Join(c.etcd.Endpoints(), ", "), ended)
	}
	return fmt.Errorf("etcd did not answer: %w", ended)
}

// Grant requests a lease with this time to live, in whole seconds, until it is granted or refused, or ctx ends.
func (c *Client) Grant(ctx context.Context, ttl time.Duration) (id clientv3.LeaseID, err error) {
	_, err = c.repeat(ctx, math.MaxInt64,
		func(ctx context.Context, timeout time.Duration) (*clientv3.TxnResponse, error) {
			ctx, cancel := context.WithTimeout(ctx, timeout)
			defer cancel()
			grant, err := c.anyMember.Grant(ctx, int64(ttl/time.Second))
			if err == nil {
				id = grant.ID
			}
			return nil, err
		})
	return id, err
}
