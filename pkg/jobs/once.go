package jobs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/locktxn"
	"github.com/clustermutex/unlocker/internal/locktxn/etcdretry"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

// clockTolerance is how much clocks may differ before a call returns an error.
const clockTolerance = 30 * time.Second

// Option sets one property of a job that runs once for each tick.
type Option func(*options)

type options struct {
	offset       time.Duration
	retryOnError bool
	lock         []mutex.Option
}

// RetryOnError lets another call for the same tick run the function again if it returned an error or panicked: the tick
// is given back. That requires the lock: if the process is killed or the lock is lost, the tick stays used up.
func RetryOnError() Option { return func(o *options) { o.retryOnError = true } }

// LockOptions sets options of the lock under which the job runs, such as [mutex.AlertAfter] and [mutex.Purpose].
func LockOptions(opts ...mutex.Option) Option {
	return func(o *options) { o.lock = append(o.lock, opts...) }
}

// OnceAt runs fn at most once for each tick of a schedule across all replicas, however short fn is and however much
// their clocks differ, and reports whether this call ran it. A tick is the time that a run is for, such as 03:00:00, in
// whole milliseconds: take it from the schedule, so that all replicas compute the same.
//
// The first call to write the tick gets it, in the transaction that takes the lock. fn runs under the lock, as in
// [mutex.Client.Do]. Ticks only go forward: once a tick is taken, no earlier one is. A tick is used up when fn begins;
// if the process then dies, or fn fails, fn does not run again before the next tick, unless [RetryOnError] is given.
// After a [metadata.ErrOutcomeUnknown] the tick may be used up although fn did not run.
//
// false and nil mean that the tick, or a later one, is taken; see [LastPeriod]. All other results are in
// docs/client-jobs.md.
func OnceAt(ctx context.Context, locks *mutex.Client, name string, tick time.Time,
	fn func(ctx context.Context) error, opts ...Option) (ran bool, err error) {
	return runOnce(ctx, &once{client: client{locks: locks}, name: name, word: scheduled, at: tick}, fn, opts)
}

// ErrTickTaken means that the tick, or a later one, is taken.
var ErrTickTaken = errors.New("the tick is taken")

// TickLock is the lock of a job, with the tick that it was taken for. The tick stays used up after Unlock.
type TickLock struct {
	*mutex.Lock
	once *once
}

// TryLockAt takes the tick and the lock as [OnceAt] does, for schedulers that call Lock and Unlock themselves. Its
// error wraps [ErrTickTaken] if the tick is taken. [RetryOnError] has no effect: call [TickLock.GiveBack].
func TryLockAt(ctx context.Context, locks *mutex.Client, name string, tick time.Time, opts ...Option) (*TickLock,
	error) {
	return lockOnce(ctx, &once{client: client{locks: locks}, name: name, word: scheduled, at: tick}, opts)
}

// GiveBack releases the lock and gives the tick back, unless the lock was lost.
func (l *TickLock) GiveBack() error { return l.once.unlock(l.Lock, true) }

// What ticks are called: attributes of the record.
const (
	scheduled = "tick"
	period    = "period"
)

type once struct {
	client
	options
	name  string
	word  string        // what the tick is called: scheduled, or a period
	at    time.Time     // the scheduled tick
	every time.Duration // the length of periods
	owner string

	key    string // of the last tick
	before string // its previous value; empty if there was none
}

func runOnce(ctx context.Context, o *once, fn func(context.Context) error, opts []Option) (ran bool, err error) {
	if fn == nil {
		return false, o.explain(errors.New("there is no function to run"))
	}
	l, err := lockOnce(ctx, o, opts)
	switch {
	case errors.Is(err, ErrTickTaken):
		return false, nil
	case err != nil:
		return false, err
	}
	return true, o.run(ctx, l.Lock, fn)
}

func lockOnce(ctx context.Context, o *once, opts []Option) (*TickLock, error) {
	if err := o.prepare(opts); err != nil {
		return nil, o.explain(err)
	}
	l, err := o.take(ctx)
	switch {
	case err != nil:
		return nil, o.explain(err)
	case !time.Now().Before(l.Deadline()): // the answer was late
		_ = o.unlock(l, true) // the loss is what counts
		return nil, &mutex.LostError{Name: o.name, UUID: l.UUID(), Token: l.Token(), At: o.clientOptions.Now()}
	}
	return &TickLock{l, o}, nil
}

// prepare checks what can be checked without etcd.
func (o *once) prepare(opts []Option) (err error) {
	if o.client, err = newClient(o.locks); err != nil {
		return err
	}
	for _, option := range opts {
		if option != nil {
			option(&o.options)
		}
	}
	draft, err := draftPlain(o.locks, o.name, o.lock)
	if err != nil {
		return err
	}
	o.owner = draft.Owner
	o.key = o.layout.Period(o.name)
	switch {
	case o.word == period:
		return o.checkPeriod()
	case o.offset != 0:
		return errors.New("PeriodOffset goes with OncePer")
	case !canBeTick(o.at):
		return fmt.Errorf("the tick is %s: it must be between 1970 and 2261", formatUTC(o.at))
	}
	return nil
}

// canBeTick reports whether a time fits into nanoseconds since 1970.
func canBeTick(t time.Time) bool { return t.Year() >= 1970 && t.Year() <= 2261 }

// draftPlain returns the record that a lock would have. It refuses options of a lock that several can hold.
func draftPlain(locks *mutex.Client, name string, opts []mutex.Option) (lockrecord.Draft, error) {
	d, err := locks.Internals().Draft(name, opts...)
	switch d.Attributes[metadata.AttributeKind] {
	case metadata.KindSemaphore, metadata.KindShared, metadata.KindExclusive:
		return d, errors.New("a job runs under a plain lock, not under one that several can hold")
	}
	return d, err
}

func (o *once) take(ctx context.Context) (*mutex.Lock, error) {
	ctx, cancel := context.WithTimeout(ctx, o.clientOptions.RequestTimeout)
	defer cancel()
	for n := 0; ; n++ {
		now := o.now()
		tick, err := o.tick(now)
		if err != nil {
			return nil, err
		}
		seen, err := o.read(ctx, tick, now)
		if err != nil {
			return nil, err
		}
		l, err := o.try(ctx, tick, now, seen)
		if !o.isForestalled(err) {
			return l, err
		}
		if !etcdretry.Sleep(ctx, etcdretry.Backoff(n)) {
			return nil, etcdretry.ContextError(ctx, nil)
		}
	}
}

// tick returns the tick of the schedule, or the start of the period that contains now.
func (o *once) tick(now time.Time) (time.Time, error) {
	switch {
	case !canBeTick(now):
		return time.Time{}, fmt.Errorf("this machine's clock says %s", formatUTC(now))
	case o.word == period:
		return o.periodStart(now), nil
	case o.at.After(now.Add(clockTolerance)):
		return time.Time{}, fmt.Errorf("the tick of %s has not come: this machine's clock says %s", formatUTC(o.at),
			formatUTC(now))
	}
	return o.at.Truncate(time.Millisecond), nil
}

// read returns the mod revision of the key of the last tick, or ErrTickTaken.
func (o *once) read(ctx context.Context, tick, now time.Time) (seen int64, err error) {
	r, err := o.send(ctx, locktxn.ReadPeriod(o.layout, o.name))
	if err != nil {
		return 0, err
	}
	o.before = ""
	for _, kv := range r.Keys(0).Kvs {
		o.before = string(kv.Value)
		seen = kv.ModRevision
		if err := o.checkNext(tick, now); err != nil {
			return 0, err
		}
	}
	return seen, o.checkBegun(tick, now, r)
}

// checkNext returns an error unless the tick comes after the last one that was taken.
func (o *once) checkNext(tick, now time.Time) error {
	last, err := protocol.ParsePeriod(o.before)
	switch {
	case err != nil:
		return fmt.Errorf("the key %s cannot be read: %w", o.key, err)
	case tick.After(last.Start):
		return nil
	case last.Start.After(now.Add(clockTolerance)):
		taken := Period{Start: last.Start, Note: last.Note}
		return &PeriodError{Name: o.name, Start: tick, Last: taken, At: now, Key: o.key}
	}
	o.clientOptions.Logger.Debug("the tick is taken", "lock", o.name, "last", formatUTC(last.Start), "by",
		plain(last.Note))
	return ErrTickTaken
}

// checkBegun refuses a tick that has not come by the clock of any unlocker. Without an unlocker it refuses none.
func (o *once) checkBegun(tick, now time.Time, r etcdretry.Response) error {
	var latest metadata.Presence
	for _, kv := range r.Keys(1).Kvs {
		p := protocol.DecodePresence(o.layout.Parse(string(kv.Key)).ID, kv.Value, kv.Lease)
		if p != nil && p.Now.After(latest.Now.Time) {
			latest = *p
		}
	}
	if latest.Now.IsZero() || !tick.After(latest.Now.Add(protocol.PresenceTTL+clockTolerance)) {
		return nil
	}
	return &ClockError{Name: o.name, Start: tick, Unlocker: latest, At: now}
}

// try takes the tick and the lock, if the key of the last tick has not changed since it was read.
func (o *once) try(ctx context.Context, tick, now time.Time, seen int64) (*mutex.Lock, error) {
	taken := protocol.FormatPeriod(protocol.Period{Start: tick, Note: o.note(now)})
	return o.locks.TryLock(ctx, o.name, slices.Concat([]mutex.Option{
		mutex.Attribute(o.word, formatUTC(tick)),
		o.locks.Internals().WithDocuments(locktxn.NewDocuments(o.key)),
		mutex.If(clientv3.Compare(clientv3.ModRevision(o.key), "=", seen)),
		mutex.Then(clientv3.OpPut(o.key, taken)),
	}, o.lock)...)
}

// note returns who takes the tick, and when.
func (o *once) note(now time.Time) string {
	by := fmt.Sprintf("taken %s by %s", formatUTC(now), cmp.Or(plain(o.owner), "an unknown owner"))
	if host := o.clientOptions.Hostname; host != "" {
		by += " on " + plain(host)
	}
	if o.word == period {
		by += fmt.Sprintf(", every %v", o.every)
	}
	return by
}

// isForestalled reports whether another call took a tick in the meantime.
func (o *once) isForestalled(err error) bool {
	refused, isCondition := errors.AsType[*mutex.ConditionError](err)
	return isCondition && slices.ContainsFunc(refused.Failed, func(f mutex.FailedCondition) bool {
		return string(f.Compare.KeyBytes()) == o.key
	})
}

// run runs fn under the lock and releases the lock, with the tick if the options say so.
func (o *once) run(ctx context.Context, l *mutex.Lock, fn func(context.Context) error) (err error) {
	failed := true
	defer func() {
		if lost := o.unlock(l, failed && o.retryOnError); lost != nil {
			err = errors.Join(err, lost)
		}
	}()
	ctx, done := l.WorkContext(ctx)
	defer done()
	err = fn(ctx)
	failed = err != nil
	return err
}

// unlock releases the lock, after it gave the tick back if it is to do so and nobody reset the job.
func (o *once) unlock(l *mutex.Lock, giveBack bool) (err error) {
	if giveBack {
		if _, err = o.send(context.Background(), o.restoreTxn(l)); err != nil {
			err = fmt.Errorf("the tick was not given back: %w", err)
		}
	}
	return errors.Join(err, l.Unlock())
}

// restoreTxn returns a transaction that puts the previous tick while the lock is held.
func (o *once) restoreTxn(l *mutex.Lock) locktxn.Txn {
	before := clientv3.OpDelete(o.key)
	if o.before != "" {
		before = clientv3.OpPut(o.key, o.before)
	}
	hold := locktxn.Hold{Lock: o.name, UUID: l.UUID(), Token: l.Token()}
	return locktxn.Txn{
		If: append(locktxn.HeldBy(o.layout, hold),
			clientv3.Compare(clientv3.ModRevision(o.key), "=", l.Token())),
		Then: []clientv3.Op{before},
	}
}

// explain adds the name of the job to an error that does not have it.
func (o *once) explain(err error) error {
	_, isPeriod := errors.AsType[*PeriodError](err)
	_, isClock := errors.AsType[*ClockError](err)
	if err == nil || isPeriod || isClock {
		return err
	}
	return fmt.Errorf("once %q: %w", o.name, err)
}
