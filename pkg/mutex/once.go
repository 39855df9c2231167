package mutex

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/locktxn"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

const (
	// shortestPeriod is the shortest time that clocks of several machines can tell apart.
	shortestPeriod = time.Second

	// clockTolerance is by how much clocks may differ without anybody saying so.
	clockTolerance = 30 * time.Second
)

// period is what the options of [Client.Once] say.
type period struct {
	once     bool // it is Once that settles them
	offset   time.Duration
	giveBack bool
}

// PeriodOffset has the periods of [Client.Once] begin so much later: with 24 hours and an offset of 90 minutes at 01:30
// UTC, with a week and an offset of 96 hours on Monday, as 1970 began on a Thursday.
func PeriodOffset(d time.Duration) Option {
	return func(s *settings) {
		s.period.offset = d
		if d < 0 {
			s.problems = append(s.problems, fmt.Errorf("the offset of the periods is %v, it must not be negative", d))
		}
	}
}

// PeriodBackOnError has [Client.Once] give the period back when the function returns an error or panics, so that
// another call in the same period runs it again. It does so as long as the lock is held: the period of a process that
// was killed, and of a run that lost its lock, stays used up.
func PeriodBackOnError() Option { return func(s *settings) { s.period.giveBack = true } }

// check refuses options of Once for other calls.
func (p period) check() error {
	if !p.once && (p.offset != 0 || p.giveBack) {
		return errors.New("PeriodOffset and PeriodBackOnError go with Once")
	}
	return nil
}

// PeriodError says that a job can not run because a period is taken that lies ahead of this machine's clock: either
// this clock is behind, or whoever took the period had one that was ahead. Nothing runs until that time, by the
// caller's clocks, unless somebody resets it with [Client.ResetPeriod].
type PeriodError struct {
	Lock  string
	Start time.Time       // of the period that was asked for
	Taken metadata.Period // the one that was taken last; its words say by whom and when
	At    time.Time       // wall clock of this process
	Key   string          // in etcd: who deletes it resets the job
}

// Error is one line for people.
func (e *PeriodError) Error() string {
	return fmt.Sprintf("once %q: the period of %s is %s ahead of this machine's clock, and it was %s; no earlier one runs any more, unless its key %s is deleted",
		e.Lock, instant(e.Taken.Start), text.DurationWords(e.Taken.Start.Sub(e.At)), plain(e.Taken.Words), e.Key)
}

// ClockError says that a job does not run because this machine's clock is ahead of those of all unlockers that run: the
// period would be used up before it began.
type ClockError struct {
	Lock     string
	Start    time.Time         // of the period that was asked for
	Unlocker metadata.Presence // the one whose clock is the latest
	At       time.Time         // wall clock of this process
}

// Error is one line for people.
func (e *ClockError) Error() string {
	return fmt.Sprintf("once %q: by the clock of unlocker %s it is %s, and the period of %s has not begun; this machine's clock says %s",
		e.Lock, plain(e.Unlocker.ID), instant(e.Unlocker.Now.Time), instant(e.Start), instant(e.At))
}

// Once runs fn at most once in each period over all replicas, however short fn is and however their clocks differ, and
// tells whether this call did. Periods are multiples of every since 1970 in UTC, see [PeriodOffset]. Call it as often
// as you like, for instance ten times in a period from each replica: a call that has nothing to do costs one read.
//
// The first to write the period's start has it, in the transaction that takes the lock: fn runs under the lock, as in
// [Client.Do], with the same options. Periods only go forward: with a clock that is an hour behind, nothing that ran is
// run again.
//
//   - false and nil: the period is taken. [Client.Period] tells by whom.
//   - false and a [*HeldError]: somebody holds the lock, such as the run of an earlier period. This period is not used up.
//   - false and a [*PeriodError] or a [*ClockError]: a clock is wrong, and somebody has to look.
//   - true: the error is that of fn and of the lock, as from Do.
//
// A period is used up when fn begins. If the process dies then, or fn fails, it is not run again before the next
// period, unless [PeriodBackOnError] was given. After an [ErrUnknown] the period may be used up although fn did not
// run.
func (c *Client) Once(ctx context.Context, name string, every time.Duration, fn func(ctx context.Context) error,
	opts ...Option) (ran bool, err error) {
	o, err := c.newOnce(name, every, fn, opts)
	if err != nil {
		return false, fmt.Errorf("once %q: %w", name, err)
	}
	l, err := o.take(ctx)
	if l == nil {
		return false, o.explain(err)
	}
	return true, o.run(ctx, l, fn)
}

// once is one call.
type once struct {
	c     *Client
	lock  string
	every time.Duration
	set   settings
	opts  []Option

	before string // value of the period's key; empty where there was none
}

// newOnce checks all that can be checked without etcd.
func (c *Client) newOnce(name string, every time.Duration, fn func(context.Context) error,
	opts []Option) (*once, error) {
	o := &once{c: c, lock: name, every: every, opts: append([]Option{func(s *settings) { s.period.once = true }},
		opts...)}
	a, _, err := c.newAcquisition(name, o.opts)
	if err != nil {
		return nil, err
	}
	o.set = a.set
	switch {
	case fn == nil:
		return nil, errors.New("there is no function to run")
	case every < shortestPeriod || every > maxDuration:
		return nil, fmt.Errorf("the period is %v, it must be between %v and %v", every, shortestPeriod, maxDuration)
	case o.set.period.offset >= every:
		return nil, fmt.Errorf("the offset of the periods is %v, it must be shorter than the period of %v",
			o.set.period.offset, every)
	case o.set.kind.shared():
		return nil, errors.New("a job runs under a plain lock, not under one that several can hold")
	}
	return o, nil
}

// start is the beginning of the period in which the instant lies.
func (o *once) start(now time.Time) (time.Time, error) {
	if now.Year() < 1970 || now.Year() > 2261 { // nanoseconds fit
		return time.Time{}, fmt.Errorf("this machine's clock says %s", instant(now))
	}
	since := now.UnixNano() - int64(o.set.period.offset)
	past := since % int64(o.every)
	if past < 0 {
		past += int64(o.every)
	}
	return time.Unix(0, now.UnixNano()-past).UTC(), nil
}

// take takes the period with the lock. Without either there is nothing to do.
func (o *once) take(ctx context.Context) (*Lock, error) {
	ctx, cancel := context.WithTimeout(ctx, o.c.opts.RequestTimeout)
	defer cancel()
	for n := 0; ; n++ {
		now := o.c.wall()
		start, err := o.start(now)
		if err != nil {
			return nil, err
		}
		seen, due, err := o.look(ctx, start, now)
		if err != nil || !due {
			return nil, err
		}
		l, forestalled, err := o.try(ctx, start, now, seen)
		if !forestalled {
			return l, err
		}
		if !pause(ctx, delay(n)) {
			return nil, ended(ctx)
		}
	}
}

// look tells whether the period is due, and the mod revision of the last one's key.
func (o *once) look(ctx context.Context, start, now time.Time) (seen int64, due bool, err error) {
	r, err := o.c.send(ctx, locktxn.LookAtPeriod(o.c.layout, o.lock))
	if err != nil {
		return 0, false, err
	}
	o.before = ""
	for _, kv := range r.keys(0).Kvs {
		o.before = string(kv.Value)
		seen = kv.ModRevision
		if due, err := o.after(o.before, start, now); !due {
			return 0, false, err
		}
	}
	return seen, true, o.begun(start, now, r)
}

// after tells whether the period comes after the one that was taken last.
func (o *once) after(value string, start, now time.Time) (bool, error) {
	key := o.c.layout.Period(o.lock)
	last, err := metadata.ParsePeriod(value)
	switch {
	case err != nil:
		return false, fmt.Errorf("the key %s can not be read: %w", key, err)
	case start.After(last.Start):
		return true, nil
	case last.Start.After(now.Add(clockTolerance)):
		return false, &PeriodError{Lock: o.lock, Start: start, Taken: last, At: now, Key: key}
	}
	o.c.line(slog.LevelDebug, "the period is taken",
		slog.String("lock", o.lock), slog.String("period", instant(last.Start)), slog.String("by", plain(last.Words)))
	return false, nil
}

// begun refuses a period that has not begun by the clock of any unlocker. Where none runs there is nobody to ask.
func (o *once) begun(start, now time.Time, r answer) error {
	var latest metadata.Presence
	for _, kv := range r.keys(1).Kvs {
		p, err := metadata.Unmarshal[metadata.Presence](kv.Value)
		if err == nil && kv.Lease != 0 && p.Now.After(latest.Now.Time) { // without a lease it may be left over
			latest = p
		}
	}
	if latest.Now.IsZero() || !start.After(latest.Now.Add(metadata.PresenceTTL+clockTolerance)) {
		return nil
	}
	return &ClockError{Lock: o.lock, Start: start, Unlocker: latest, At: now}
}

// try takes the period and the lock, or tells that somebody else took a period meanwhile.
func (o *once) try(ctx context.Context, start, now time.Time, seen int64) (l *Lock, forestalled bool, err error) {
	key := o.c.layout.Period(o.lock)
	taken := metadata.FormatPeriod(metadata.Period{Start: start, Words: o.words(now)})
	a, _, err := o.c.newAcquisition(o.lock, append([]Option{Attribute("period", instant(start))}, o.opts...))
	if err != nil {
		return nil, false, err
	}
	j := &joint{c: o.c, parts: []*acquisition{a}, only: a.set.only, with: a.set.with}
	j.only = append([]clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(key), "=", seen)}, j.only...)
	j.own = []clientv3.Op{clientv3.OpPut(key, taken)}
	began := time.Now()
	locks, err := j.try(ctx)
	if failed, isCondition := errors.AsType[*ConditionError](err); isCondition && o.forestalled(failed) {
		return nil, true, nil
	}
	j.waited(began, locks, err)
	if err != nil {
		return nil, false, err
	}
	return locks[0], false, nil
}

// words tell people who took a period.
func (o *once) words(now time.Time) string {
	by := fmt.Sprintf("taken %s by %s", instant(now), or(plain(o.set.owner), "an unknown owner"))
	if host := o.c.opts.Hostname; host != "" {
		by += " on " + plain(host)
	}
	return fmt.Sprintf("%s, every %v", by, o.every)
}

// forestalled tells whether somebody else took a period meanwhile.
func (o *once) forestalled(e *ConditionError) bool {
	return string(e.Failed[0].Compare.KeyBytes()) == o.c.layout.Period(o.lock)
}

// run runs fn under the lock and gives that back, with the period if so asked.
func (o *once) run(ctx context.Context, l *Lock, fn func(context.Context) error) (err error) {
	failed := true
	defer func() {
		if lost := o.giveBack(l, failed); lost != nil {
			err = errors.Join(err, lost)
		}
	}()
	ctx, done := l.under(ctx)
	defer done()
	err = fn(ctx)
	failed = err != nil
	return err
}

func (o *once) giveBack(l *Lock, failed bool) error {
	if failed && o.set.period.giveBack {
		key := o.c.layout.Period(o.lock)
		restore := clientv3.OpDelete(key)
		if o.before != "" {
			restore = clientv3.OpPut(key, o.before)
		}
		mine := clientv3.Compare(clientv3.ModRevision(key), "=", l.Token())
		if err := l.unlockWith(nil, []clientv3.Op{restore}, []clientv3.Cmp{mine}); err == nil ||
			errors.Is(err, ErrNotHeld) {
			return err
		} else if !errors.Is(err, ErrCondition) { // somebody reset it
			return errors.Join(fmt.Errorf("the period was not given back: %w", err), l.Unlock())
		}
	}
	return l.Unlock()
}

// explain says what was tried, where the error does not say it itself.
func (o *once) explain(err error) error {
	_, isPeriod := errors.AsType[*PeriodError](err)
	_, isClock := errors.AsType[*ClockError](err)
	if err == nil || isPeriod || isClock {
		return err
	}
	return fmt.Errorf("once %q: %w", o.lock, err)
}

// Period is the last period in which the job under this lock was run, by [Client.Once]. Its start is zero where there
// is none.
func (c *Client) Period(ctx context.Context, name string) (metadata.Period, error) {
	value, err := c.period(ctx, name, locktxn.LookAtPeriod(c.layout, name))
	if err != nil || value == "" {
		return metadata.Period{}, err
	}
	p, err := metadata.ParsePeriod(value)
	if err != nil {
		return p, fmt.Errorf("period of %q: %w", name, err)
	}
	return p, nil
}

// ResetPeriod forgets the last period of the job under this lock, whenever it was: the next call of [Client.Once] runs
// it, in this period again if need be. It is how an operator mends what a wrong clock did.
func (c *Client) ResetPeriod(ctx context.Context, name string) error {
	_, err := c.period(ctx, name, locktxn.Txn{Then: []clientv3.Op{clientv3.OpDelete(c.layout.Period(name))}})
	return err
}

func (c *Client) period(ctx context.Context, name string, txn locktxn.Txn) (string, error) {
	if err := metadata.CheckName(name); err != nil {
		return "", fmt.Errorf("period of %q: %w", name, err)
	}
	ctx, cancel := context.WithTimeout(ctx, c.opts.RequestTimeout)
	defer cancel()
	r, err := c.send(ctx, txn)
	if err != nil {
		return "", fmt.Errorf("period of %q: %w", name, err)
	}
	for _, kv := range r.keys(0).Kvs {
		return string(kv.Value), nil
	}
	return "", nil
}

// instant is a time for people who compare clocks.
func instant(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }
