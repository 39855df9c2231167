package jobs

import (
	"context"
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/locktxn"
	"github.com/clustermutex/unlocker/internal/locktxn/etcdretry"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

var errNoLocks = errors.New("no lock client was given")

// client is a lock client, with what jobs need of it.
type client struct {
	locks         *mutex.Client
	clientOptions mutex.Options
	layout        protocol.Layout
}

func newClient(locks *mutex.Client) (client, error) {
	if locks == nil {
		return client{}, errNoLocks
	}
	return client{locks: locks, clientOptions: locks.Options(), layout: locks.Internals().Layout()}, nil
}

// send sends a transaction that may be repeated, until there is an answer.
func (c *client) send(ctx context.Context, txn locktxn.Txn) (etcdretry.Response, error) {
	ctx, cancel := context.WithTimeout(ctx, c.clientOptions.RequestTimeout)
	defer cancel()
	return c.locks.Internals().Retry().Send(ctx, txn)
}

func (c *client) now() time.Time { return c.clientOptions.Now().Truncate(time.Millisecond) }

// The shortest and the longest period of [OncePer]. The clocks of several machines cannot distinguish shorter ones.
const (
	MinPeriod = time.Second
	MaxPeriod = 10 * 365 * 24 * time.Hour
)

// PeriodOffset makes the periods begin later by d, which must be shorter than the period: weeks with an offset of 96
// hours begin on Monday, because 1970 began on a Thursday.
func PeriodOffset(d time.Duration) Option { return func(o *options) { o.offset = d } }

// OncePer is [OnceAt] with a tick that this machine's clock chooses: the start of the current period. Periods are
// multiples of every since 1970 in UTC, see [PeriodOffset]. Call it as often as you like: a call that finds nothing to
// do costs one read.
func OncePer(ctx context.Context, locks *mutex.Client, name string, every time.Duration,
	fn func(ctx context.Context) error, opts ...Option) (ran bool, err error) {
	return runOnce(ctx, &once{client: client{locks: locks}, name: name, word: period, every: every}, fn, opts)
}

func (o *once) checkPeriod() error {
	switch {
	case o.every < MinPeriod || o.every > MaxPeriod:
		return fmt.Errorf("the period is %v: it must be between %v and %v", o.every, MinPeriod, MaxPeriod)
	case o.offset < 0:
		return fmt.Errorf("PeriodOffset is %v: it must not be negative", o.offset)
	case o.offset >= o.every:
		return fmt.Errorf("PeriodOffset is %v: it must be shorter than the period of %v", o.offset, o.every)
	}
	return nil
}

func (o *once) periodStart(now time.Time) time.Time {
	since := now.UnixNano() - int64(o.offset)
	past := since % int64(o.every)
	if past < 0 {
		past += int64(o.every)
	}
	return time.Unix(0, now.UnixNano()-past).UTC()
}

// Period is a period, or a tick of a schedule, for which a job ran.
type Period struct {
	Start time.Time // or the tick
	Note  string    // who took it and when, as text
}

// LastPeriod returns the last period or tick for which the job of this name ran. Its Start is zero if there is none.
func LastPeriod(ctx context.Context, locks *mutex.Client, name string) (Period, error) {
	r, err := periodRequest(ctx, locks, name, locktxn.ReadPeriod)
	if err != nil {
		return Period{}, err
	}
	kvs := r.Keys(0).Kvs
	if len(kvs) == 0 {
		return Period{}, nil
	}
	p, err := protocol.ParsePeriod(string(kvs[0].Value))
	if err != nil {
		return Period{}, fmt.Errorf("period of %q: %w", name, err)
	}
	return Period{Start: p.Start, Note: p.Note}, nil
}

// ResetPeriod forgets the last period or tick of the job of this name, so that the next call runs it.
func ResetPeriod(ctx context.Context, locks *mutex.Client, name string) error {
	_, err := periodRequest(ctx, locks, name, func(l protocol.Layout, name string) locktxn.Txn {
		return locktxn.Txn{Then: []clientv3.Op{clientv3.OpDelete(l.Period(name))}}
	})
	return err
}

func periodRequest(ctx context.Context, locks *mutex.Client, name string,
	txn func(protocol.Layout, string) locktxn.Txn) (etcdretry.Response, error) {
	c, err := newClient(locks)
	if err == nil {
		err = metadata.CheckName(name)
	}
	var r etcdretry.Response
	if err == nil {
		r, err = c.send(ctx, txn(c.layout, name))
	}
	if err != nil {
		return r, fmt.Errorf("period of %q: %w", name, err)
	}
	return r, nil
}

// PeriodError means that a job cannot run, because a period or tick ahead of this machine's clock is taken. Until a
// caller's clock reaches that time the job does not run, unless [ResetPeriod] is called.
type PeriodError struct {
	Name  string    // of the job and its lock
	Start time.Time // that the caller wanted
	Last  Period    // that was taken
	At    time.Time // wall clock of this process
	Key   string    // in etcd: deleting it resets the job
}

func (e *PeriodError) Error() string {
	return fmt.Sprintf("once %q: the run of %s is %s ahead of this machine's clock, and it was %s; "+
		"earlier ones run only if its key %s is deleted",
		e.Name, formatUTC(e.Last.Start), text.DurationWords(e.Last.Start.Sub(e.At)), plain(e.Last.Note), e.Key)
}

// ClockError means that a job does not run, because this machine's clock is ahead of those of all running unlockers.
type ClockError struct {
	Name     string            // of the job and its lock
	Start    time.Time         // that the caller wanted
	Unlocker metadata.Presence // whose clock is furthest ahead
	At       time.Time         // wall clock of this process
}

func (e *ClockError) Error() string {
	return fmt.Sprintf("once %q: by the clock of unlocker %s it is %s, so the run of %s is not due; "+
		"this machine's clock says %s",
		e.Name, plain(e.Unlocker.ID), formatUTC(e.Unlocker.Now.Time), formatUTC(e.Start), formatUTC(e.At))
}

func formatUTC(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// plain makes text from outside harmless in a sentence.
func plain(s string) string {
	const maxBytes = 120
	return text.Visible(text.Clip(s, maxBytes))
}
