package leader

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/clustermutex/unlocker/pkg/inspect"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

// AttributeAddress is the attribute of a leader's record with the address at which it can be reached.
const AttributeAddress = "address"

// DefaultTTL is the default of [Options].TTL.
const DefaultTTL = mutex.DefaultHeartbeatTTL

const minTTL = 100 * time.Millisecond // as of any lock

// Options are the optional settings of a candidate.
type Options struct {
	// TTL is how long a leadership lasts after the leader's last sign of life; [DefaultTTL] when zero. The leader's own
	// context ends a little earlier, see mutex.SafetyMargin. Allow time for a restart of etcd.
	TTL time.Duration

	// Address is where others can reach this process while it leads, see [Address]. It may be empty.
	Address string

	// Check is called before each sign of life, with a context that ends when it is too late. While it fails or hangs,
	// no sign of life is given, so a leader that cannot work is replaced. With a nil Check, a running process counts as
	// healthy.
	Check func(context.Context) error

	// LockOptions are further options of the lock, such as mutex.Purpose, mutex.Attribute and mutex.OnWait. They are
	// applied last: a mutex.AutoUnlockAfter among them replaces TTL.
	LockOptions []mutex.Option
}

// Campaign waits until this process leads, and returns the lock of its leadership, which is kept alive in the
// background until Unlock. Unlock resigns; call it after a loss, too.
//
// Its errors are those of mutex.Client.Lock: a *mutex.HeldError with the leader's record if ctx ends first.
func Campaign(ctx context.Context, locks *mutex.Client, name string, o Options) (*mutex.Lock, error) {
	o.TTL = cmp.Or(o.TTL, DefaultTTL)
	if o.TTL < minTTL {
		return nil, fmt.Errorf("lock %q: Options.TTL is %v: it must be at least %v", name, o.TTL, minTTL)
	}
	opts := []mutex.Option{mutex.AutoUnlockAfter(o.TTL), mutex.AlertAfter(o.TTL)}
	if o.Address != "" {
		opts = append(opts, mutex.Attribute(AttributeAddress, o.Address))
	}
	opts = append(opts, o.LockOptions...)
	draft, err := locks.Internals().Draft(name, opts...)
	if err != nil {
		return nil, fmt.Errorf("lock %q: %w", name, err)
	}
	switch draft.Attributes[metadata.AttributeKind] {
	case metadata.KindSemaphore, metadata.KindShared:
		return nil, fmt.Errorf("lock %q: a leader holds a plain lock, or there are two", name)
	}
	o.TTL = draft.AutoUnlockAt.Sub(draft.LockedAt) // another one if Options.LockOptions say so
	l, err := locks.Lock(ctx, name, opts...)
	if err != nil {
		return nil, err
	}
	go keepAlive(l, o, func(err error) {
		locks.Options().Logger.Warn("the leader gave no sign of life", "lock", l.Name(), "uuid", l.UUID(), "error", err)
	})
	return l, nil
}

// Lead waits until this process leads, runs lead, and resigns when lead returns or panics. The context of lead is a
// mutex.Lock.WorkContext. After a loss, Lead waits for lead to return, ignores its error, and becomes a candidate
// again.
//
// The error is that of lead, joined with that of resigning, or the error of [Campaign] if this process did not get to
// lead.
func Lead(ctx context.Context, locks *mutex.Client, name string, o Options, lead func(context.Context) error) error {
	for {
		l, err := Campaign(ctx, locks, name, o)
		if errors.Is(err, mutex.ErrNotHeld) && pause(ctx, retryPause) { // lost before this process knew that it led
			continue
		}
		if err != nil {
			return fmt.Errorf("leader: %w", err) // which names the lock
		}
		if again, err := leadOnce(ctx, l, lead); !again {
			return err
		}
	}
}

// leadOnce runs lead for one leadership. again reports that it was lost.
func leadOnce(ctx context.Context, l *mutex.Lock, lead func(context.Context) error) (again bool, err error) {
	work, done := l.WorkContext(ctx)
	defer done()
	defer func() {
		_, lost := errors.AsType[*mutex.LostError](context.Cause(l.Context()))
		again = lost && ctx.Err() == nil
		if resigned := l.Unlock(); !again {
			err = errors.Join(err, resigned)
		}
	}()
	return false, lead(work)
}

// retryPause is the pause after a failed sign of life, and after a leadership that was lost before it was known.
const retryPause = time.Second

func keepAlive(l *mutex.Lock, o Options, failed func(error)) {
	ctx := l.Context()
	every := o.TTL / 3
	for next := every; pause(ctx, next); {
		next = every
		if err := alive(ctx, l, o, every); err != nil && ctx.Err() == nil {
			failed(err)
			next = min(every, retryPause)
		}
	}
}

func alive(ctx context.Context, l *mutex.Lock, o Options, within time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	if o.Check != nil {
		if err := o.Check(ctx); err != nil {
			return fmt.Errorf("it is not healthy: %w", err)
		}
	}
	return l.Alive(ctx)
}

// pause waits for d. It reports false if ctx ends first.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// Current returns the record of the leader; nil if there is none. Its LockedAt is the time since when it leads. A
// leader whose AutoUnlockAt has passed is probably dead.
func Current(ctx context.Context, inspector *inspect.Inspector, name string) (*metadata.Record, error) {
	info, err := inspector.Get(ctx, name)
	if err != nil {
		return nil, err
	}
	return recordOf(info), nil
}

// Observe yields the record of the current leader, nil if there is none, and again whenever the leader changes or is
// elected anew, until ctx ends or the loop breaks. Signs of life are not yielded.
//
// An error means that the leader is unknown, as with inspect.Inspector.Watch: Observe keeps trying, and then yields the
// leader again.
func Observe(ctx context.Context, inspector *inspect.Inspector, name string) iter.Seq2[*metadata.Record, error] {
	return func(yield func(*metadata.Record, error) bool) {
		const unknown = -1
		last := int64(unknown)
		for info, err := range inspector.Watch(ctx, name) {
			if err != nil {
				last = unknown
				if !yield(nil, err) {
					return
				}
				continue
			}
			r := recordOf(info)
			term := int64(0)
			if r != nil {
				term = r.Token
			}
			if term == last {
				continue
			}
			last = term
			if !yield(r, nil) {
				return
			}
		}
	}
}

// Address returns the address in a leader's record; empty if there is none. It is text that the leader wrote: escape
// it.
func Address(r *metadata.Record) string {
	if r == nil {
		return ""
	}
	address, _ := r.Attributes[AttributeAddress].(string)
	return address
}

func recordOf(s *inspect.LockInfo) *metadata.Record {
	if h := s.Holder(); h != nil {
		return &h.Record
	}
	return nil
}
