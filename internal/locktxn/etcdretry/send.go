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

// Outcome is what the error of a commit says about its transaction.
type Outcome int

// The outcomes.
const (
	Unknown   Outcome = iota // it may have been committed, or may yet be: only etcd knows
	Refused                  // it was not committed and will not be, however often it is sent
	Postponed                // it was not committed, but may be if it is sent again
	Full                     // etcd is out of space: it takes no more writes, but may have committed this one
)

// Judge classifies the error of a commit. Whatever is not certainly a refusal is Unknown.
func Judge(err error) Outcome {
	switch {
	case locktxn.IsPostponed(err):
		return Postponed
	case locktxn.IsNoSpace(err):
		return Full
	case locktxn.IsRefused(err):
		return Refused
	}
	return Unknown
}

// maxRefreshes is how many auth tokens in a row may turn out to be invalid.
const maxRefreshes = 5

// Answer is what is known about a transaction after it was sent, once or several times.
type Answer struct {
	*clientv3.TxnResponse // nil when there is none

	// Indeterminate reports whether a send before the last one ended without an answer: it may have been committed, or
	// may yet be.
	Indeterminate bool
}

// Keys returns what operation op read.
func (a Answer) Keys(op int) *clientv3.GetResponse { return locktxn.Keys(a.TxnResponse, op) }

// Send commits txn, which must be safe to repeat, and repeats it, byte for byte, until its outcome is known, it is
// refused or ctx ends.
func (c *Client) Send(ctx context.Context, txn locktxn.Txn) (Answer, error) {
	return c.SendFor(ctx, time.Duration(math.MaxInt64), txn)
}

// SendFor is Send with a time limit. It is cheaper than a context with a deadline, which only a second attempt needs.
func (c *Client) SendFor(ctx context.Context, most time.Duration, txn locktxn.Txn) (Answer, error) {
	began := time.Now()
	var s attempts
	for n := 0; ; n++ {
		if n == 1 && most != math.MaxInt64 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithDeadline(ctx, began.Add(most))
			defer cancel()
		}
		if n > 0 && (!Pause(ctx, Delay(n-1)) || ctx.Err() != nil) {
			return s.answer, c.Unanswered(ctx, s.last)
		}
		if ctx.Err() != nil {
			return s.answer, Ended(ctx, c.opts.Closed)
		}
		sent := time.Now()
		resp, err := c.commit(ctx, min(c.Attempt(ctx), max(most/3, leastAttempt), most), txn)
		if err == nil {
			s.answer.TxnResponse = resp
			c.opts.Answered()
			return s.answer, nil
		}
		if err := c.failed(ctx, &s, sent, err); err != nil {
			return s.answer, err
		}
	}
}

// attempts is the result of the attempts so far.
type attempts struct {
	answer    Answer
	last      error
	refreshes int // of the auth token, in a row
}

// failed notes that the attempt that was sent at this time failed. It returns an error if that is final.
func (c *Client) failed(ctx context.Context, s *attempts, sent time.Time, err error) error {
	s.last = err
	switch Judge(err) {
	case Refused:
		return err
	case Full:
		s.answer.Indeterminate = true
		return fmt.Errorf("etcd is out of space and takes no writes: %w", err)
	case Postponed:
		s.refreshes++
		if s.refreshes > maxRefreshes && !locktxn.MemberRefused(err) {
			return err
		}
	case Unknown:
		s.answer.Indeterminate = true
		s.refreshes = 0
		if ctx.Err() == nil {
			c.opts.Unanswered(sent, err)
		}
		c.reconnect()
		if c.closed() {
			return fmt.Errorf("the etcd client is closed: %w", err)
		}
	}
	return nil
}

// commit makes one attempt, which takes at most this long.
func (c *Client) commit(ctx context.Context, most time.Duration, txn locktxn.Txn) (*clientv3.TxnResponse, error) {
	attempt, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	limit := time.AfterFunc(most, func() { cancel(context.DeadlineExceeded) })
	defer limit.Stop()
	resp, err := c.send(private{attempt}, txn)
	if err != nil && context.Cause(attempt) == context.DeadlineExceeded {
		err = context.DeadlineExceeded
	}
	return resp, err
}

// send sends one transaction, perhaps in a request with others.
func (c *Client) send(ctx context.Context, txn locktxn.Txn) (*clientv3.TxnResponse, error) {
	if txn.OnlyRecord == "" {
		return txn.Commit(ctx, c.asks)
	}
	return c.commitGrouped(ctx, txn)
}

// private is a context whose deadline is not sent to etcd. It would cost a header that differs in every request, and a
// timer in etcd, for nothing: etcd has its own limit, and a request is cancelled there when it is given up here.
type private struct{ context.Context }

func (private) Deadline() (none time.Time, ok bool) { return none, false }

// Unanswered is the error when ctx ends before there is an answer; last is what came of the last attempt.
func (c *Client) Unanswered(ctx context.Context, last error) error {
	ended := Ended(ctx, c.opts.Closed)
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
func (c *Client) Grant(ctx context.Context, life time.Duration) (clientv3.LeaseID, error) {
	var s attempts
	for n := 0; ; n++ {
		sent := time.Now()
		attempt, cancel := context.WithTimeout(ctx, c.Attempt(ctx))
		grant, err := c.asks.Grant(attempt, int64(life/time.Second))
		cancel()
		if err == nil {
			c.opts.Answered()
			return grant.ID, nil
		}
		if err := c.failed(ctx, &s, sent, err); err != nil {
			return 0, err
		}
		if !Pause(ctx, Delay(n)) {
			return 0, c.Unanswered(ctx, err)
		}
	}
}
