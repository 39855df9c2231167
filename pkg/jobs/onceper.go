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

// The shortest and the longest period of [OncePer]. The clocks of several machines cannot distinguish shorter ones.
const (
	MinPeriod = time.Second
	MaxPeriod = 10 * 365 * 24 * time.Hour
)

// clockTolerance is how much clocks may differ before a call returns an error.
const clockTolerance = 30 * time.Second

// Option sets one property of a job that runs once per period.
type Option func(*options)

type options struct {
	offset       time.Duration
	retryOnError bool
	lock         []mutex.Option
}

// PeriodOffset makes the periods begin later by d, which must be shorter than the period: days with an offset of 90
// minutes begin at 01:30 UTC; weeks with an offset of 96 hours begin on Monday, because 1970 began on a Thursday.
func PeriodOffset(d time.Duration) Option { return func(o *options) { o.offset = d } }

// RetryOnError lets another call in the same period run the function again if it returned an error or panicked: the
// period is given back. That requires the lock: if the process is killed or the lock is lost, the period stays used up.
func RetryOnError() Option { return func(o *options) { o.retryOnError = true } }

// LockOptions sets options of the lock under which the job runs, such as [mutex.AlertAfter] and [mutex.Purpose].
func LockOptions(opts ...mutex.Option) Option {
	return func(o *options) { o.lock = append(o.lock, opts...) }
}

// OncePer runs fn at most once in each period across all replicas, however short fn is and however much their clocks
// differ, and reports whether this call ran it. Periods are multiples of every since 1970 in UTC, see [PeriodOffset].
// Call it as often as you like, for instance ten times in a period from each replica: a call that finds nothing to do
// costs one read.
//
// The first call to write the start of the period gets it, in the transaction that takes the lock. fn runs under the
// lock, as in [mutex.Client.Do]. Periods only go forward: a clock that is an hour behind runs nothing again.
//
//   - false and nil: the period is taken. [LastPeriod] says by whom.
//   - false and a [*mutex.HeldError]: the lock is held, for instance by the run of an earlier period. This period is
//     not used up.
//   - false and a [*mutex.LostError]: the answer came after the [mutex.Lock.Deadline], and fn did not begin. The period
//     is given back if the lock was still held in etcd.
//   - false and a [*PeriodError] or a [*ClockError]: a clock is wrong, and an operator must correct it.
//   - true: the error is that of fn and of the lock, as from Do.
//
// A period is used up when fn begins. If the process then dies, or fn fails, fn does not run again before the next
// period, unless [RetryOnError] is given. After a [metadata.ErrOutcomeUnknown] the period may be used up although fn
// did not run.
func OncePer(ctx context.Context, locks *mutex.Client, name string, every time.Duration,
	fn func(ctx context.Context) error, opts ...Option) (ran bool, err error) {
	o, err := newOnce(locks, name, every, fn, opts)
	if err != nil {
		return false, fmt.Errorf("once %q: %w", name, err)
	}
	l, err := o.take(ctx)
	switch {
	case l == nil:
		return false, o.explain(err)
	case !time.Now().Before(l.Deadline()): // the answer was late
		_ = o.unlock(l, true) // the loss is what counts
		return false, &mutex.LostError{Name: o.name, UUID: l.UUID(), Token: l.Token(), At: o.about.Now()}
	}
	return true, o.run(ctx, l, fn)
}

type once struct {
	options
	locks  *mutex.Client
	about  mutex.Options
	etcd   *etcdretry.Client
	layout protocol.Layout
	name   string
	every  time.Duration
	owner  string

	key    string // of the period
	before string // its previous value; empty if there was none
}

// newOnce checks what can be checked without etcd.
func newOnce(locks *mutex.Client, name string, every time.Duration, fn func(context.Context) error,
	opts []Option) (*once, error) {
	if locks == nil {
		return nil, errNoLocks
	}
	o := &once{locks: locks, about: locks.Options(), etcd: locks.Internals().Retry(),
		layout: locks.Internals().Layout(), name: name, every: every}
	for _, option := range opts {
		if option != nil {
			option(&o.options)
		}
	}
	draft, err := draftPlain(locks, name, o.lock)
	if err != nil {
		return nil, err
	}
	o.owner = draft.Owner
	o.key = o.layout.Period(name)
	switch {
	case fn == nil:
		return nil, errors.New("there is no function to run")
	case every < MinPeriod || every > MaxPeriod:
		return nil, fmt.Errorf("the period is %v: it must be between %v and %v", every, MinPeriod, MaxPeriod)
	case o.offset < 0:
		return nil, fmt.Errorf("PeriodOffset is %v: it must not be negative", o.offset)
	case o.offset >= every:
		return nil, fmt.Errorf("PeriodOffset is %v: it must be shorter than the period of %v", o.offset, every)
	}
	return o, nil
}

// draftPlain returns the record that a lock would have. It refuses options that the lock cannot be taken with, and
// those of a lock that several can hold.
func draftPlain(locks *mutex.Client, name string, opts []mutex.Option) (lockrecord.Draft, error) {
	d, err := locks.Internals().Draft(name, opts...)
	switch d.Attributes[metadata.AttributeKind] {
	case metadata.KindSemaphore, metadata.KindShared, metadata.KindExclusive:
		return d, errors.New("a job runs under a plain lock, not under one that several can hold")
	}
	return d, err
}

// take takes the period together with the lock. The lock is nil if there is nothing to do.
func (o *once) take(ctx context.Context) (*mutex.Lock, error) {
	ctx, cancel := context.WithTimeout(ctx, o.about.RequestTimeout)
	defer cancel()
	for n := 0; ; n++ {
		now := o.about.Now().Truncate(time.Millisecond)
		start, err := o.periodStart(now)
		if err != nil {
			return nil, err
		}
		seen, due, err := o.read(ctx, start, now)
		if err != nil || !due {
			return nil, err
		}
		l, err := o.try(ctx, start, now, seen)
		if !o.isForestalled(err) {
			return l, err
		}
		if !etcdretry.Sleep(ctx, etcdretry.Backoff(n)) {
			return nil, etcdretry.ContextError(ctx, nil)
		}
	}
}

// periodStart returns the beginning of the period that contains now.
func (o *once) periodStart(now time.Time) (time.Time, error) {
	if now.Year() < 1970 || now.Year() > 2261 { // UnixNano fits
		return time.Time{}, fmt.Errorf("this machine's clock says %s", instant(now))
	}
	since := now.UnixNano() - int64(o.offset)
	past := since % int64(o.every)
	if past < 0 {
		past += int64(o.every)
	}
	return time.Unix(0, now.UnixNano()-past).UTC(), nil
}

// read reports whether the period is due, and the mod revision of the period key.
func (o *once) read(ctx context.Context, start, now time.Time) (seen int64, due bool, err error) {
	r, err := o.etcd.Send(ctx, locktxn.ReadPeriod(o.layout, o.name))
	if err != nil {
		return 0, false, err
	}
	o.before = ""
	for _, kv := range r.Keys(0).Kvs {
		o.before = string(kv.Value)
		seen = kv.ModRevision
		if due, err := o.isNext(start, now); !due {
			return 0, false, err
		}
	}
	return seen, true, o.checkBegun(start, now, r)
}

// isNext reports whether the period comes after the last one that was taken.
func (o *once) isNext(start, now time.Time) (bool, error) {
	last, err := protocol.ParsePeriod(o.before)
	switch {
	case err != nil:
		return false, fmt.Errorf("the key %s cannot be read: %w", o.key, err)
	case start.After(last.Start):
		return true, nil
	case last.Start.After(now.Add(clockTolerance)):
		taken := Period{Start: last.Start, Note: last.Note}
		return false, &PeriodError{Name: o.name, Start: start, Last: taken, At: now, Key: o.key}
	}
	o.about.Logger.Debug("the period is taken", "lock", o.name, "period", instant(last.Start), "by", quoted(last.Note))
	return false, nil
}

// checkBegun refuses a period that has not begun by the clock of any unlocker. Without an unlocker it refuses none.
func (o *once) checkBegun(start, now time.Time, r etcdretry.Response) error {
	var latest metadata.Presence
	for _, kv := range r.Keys(1).Kvs {
		p := protocol.ReadPresence(o.layout.Parse(string(kv.Key)).ID, kv.Value)
		if p != nil && kv.Lease != 0 && p.Now.After(latest.Now.Time) { // without a lease it may be a leftover
			latest = *p
		}
	}
	if latest.Now.IsZero() || !start.After(latest.Now.Add(protocol.PresenceTTL+clockTolerance)) {
		return nil
	}
	return &ClockError{Name: o.name, Start: start, Unlocker: latest, At: now}
}

// try takes the period and the lock, if the period key has not changed since it was read.
func (o *once) try(ctx context.Context, start, now time.Time, seen int64) (*mutex.Lock, error) {
	taken := protocol.FormatPeriod(protocol.Period{Start: start, Note: o.note(now)})
	return o.locks.TryLock(ctx, o.name, slices.Concat([]mutex.Option{
		mutex.Attribute("period", instant(start)),
		o.locks.Internals().WithDocuments(locktxn.NewDocuments(o.key)),
		mutex.If(clientv3.Compare(clientv3.ModRevision(o.key), "=", seen)),
		mutex.Then(clientv3.OpPut(o.key, taken)),
	}, o.lock)...)
}

// note returns who takes the period, and when.
func (o *once) note(now time.Time) string {
	by := fmt.Sprintf("taken %s by %s", instant(now), cmp.Or(quoted(o.owner), "an unknown owner"))
	if host := o.about.Hostname; host != "" {
		by += " on " + quoted(host)
	}
	return fmt.Sprintf("%s, every %v", by, o.every)
}

// isForestalled reports whether another call took a period in the meantime.
func (o *once) isForestalled(err error) bool {
	refused, isCondition := errors.AsType[*mutex.ConditionError](err)
	return isCondition && slices.ContainsFunc(refused.Failed, func(f mutex.FailedCondition) bool {
		return string(f.Compare.KeyBytes()) == o.key
	})
}

// run runs fn under the lock and releases the lock, with the period if the options say so.
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

// unlock releases the lock, after it gave the period back if it is to do so and nobody reset the period.
func (o *once) unlock(l *mutex.Lock, giveBack bool) (err error) {
	if giveBack {
		ctx, cancel := context.WithTimeout(context.Background(), o.about.RequestTimeout)
		defer cancel()
		if _, err = o.etcd.Send(ctx, o.restoreTxn(l)); err != nil {
			err = fmt.Errorf("the period was not given back: %w", err)
		}
	}
	return errors.Join(err, l.Unlock())
}

// restoreTxn returns a transaction that puts the previous value of the period while the lock is held.
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
