package mutex

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/clustermutex/unlocker/internal/locktxn"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// Alive says that the work makes progress: the alert and the auto-unlock are put off, by the same durations as at the acquisition
// and counted from now. The words of progress, if any, are shown to people with the lock.
//
// nil means that etcd confirmed the hold. A [*LostError] means that it is over; the handle's context has ended then. After any
// other error the hold stands as it stood, until the deadline it had.
func (l *Lock) Alive(ctx context.Context, progress ...string) error {
	err := l.extend(ctx, false, strings.Join(progress, " "))
	if err == nil || errors.Is(err, ErrNotHeld) {
		return err
	}
	return fmt.Errorf("alive %q: %w", l.held.Lock, err)
}

// beat is the heartbeat: an extension each third of the time that is left after one, with at most a third of that for an attempt,
// and as often as etcd lets it while it fails.
func (l *Lock) beat() {
	interval := (l.set.autoUnlockAfter - l.set.safetyMargin) / 3
	log := l.c.opts.Log.With().Str("lock", l.held.Lock).Str("uuid", l.held.UUID).Logger()
	for next := interval; pause(l.watch, next); {
		if time.Since(l.start) >= l.set.maximumHold-l.set.safetyMargin {
			log.Warn().Dur("maximum_hold", l.set.maximumHold).Msg("the heartbeat ends: the lock was held for its maximum")
			return
		}
		ctx, cancel := context.WithTimeout(l.watch, interval)
		err := l.extend(ctx, true, "")
		cancel()
		next = interval
		if err != nil && l.watch.Err() == nil {
			next = min(interval, jitter(MaxRetryDelay))
			log.Warn().Err(err).Msg("heartbeat failed")
		}
	}
}

// extend moves the deadlines. Extensions of one hold take turns, so that the last one wins.
func (l *Lock) extend(ctx context.Context, heartbeat bool, progress string) error {
	if err := l.err(); err != nil {
		return err
	}
	ctx, cancel := context.WithDeadline(ctx, l.Deadline())
	defer cancel()
	defer context.AfterFunc(l.watch, cancel)()
	select {
	case l.turn <- struct{}{}:
		defer func() { <-l.turn }()
	case <-ctx.Done():
		return l.or(context.Cause(ctx))
	}
	start, at := time.Now(), l.clock()
	autoUnlockAt := at.Add(l.set.autoUnlockAfter)
	if heartbeat && l.set.maximumHold > 0 {
		if end := l.wall.Add(l.set.maximumHold); autoUnlockAt.After(end) {
			autoUnlockAt = end
		}
	}
	alertAt, progress := l.note(at, autoUnlockAt, heartbeat, progress)
	r, err := l.c.send(ctx, locktxn.Alive(l.c.layout, l.held,
		metadata.FormatTime(alertAt), metadata.FormatTime(autoUnlockAt), metadata.FormatAlive(at, progress)))
	if err != nil {
		return l.or(err)
	}
	if !r.Succeeded {
		now := l.c.record(l.held.Lock, r, 0)
		if now.Token != l.held.Token || now.UUID != l.held.UUID {
			return l.gone(ctx, &now)
		}
		// The deadline in etcd was later or, when an earlier sending was committed, is this one.
		if autoUnlockAt = now.AutoUnlockAt; autoUnlockAt.IsZero() {
			return errors.New("somebody removed its auto_unlock_at or made it unreadable")
		}
	}
	l.extendUntil(start.Add(autoUnlockAt.Sub(at) - l.set.safetyMargin))
	return l.err()
}

// note keeps what an extension says beyond the deadline, and tells when people are to be alerted. A heartbeat repeats what the
// last Alive said, and an alert never comes after the auto-unlock.
func (l *Lock) note(at, autoUnlockAt time.Time, heartbeat bool, progress string) (time.Time, string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !heartbeat {
		l.goal, l.progress = at.Add(l.set.expectedRunTime), progress
	}
	if l.goal.Before(autoUnlockAt) {
		return l.goal, l.progress
	}
	return autoUnlockAt, l.progress
}

// clock is the wall clock for the deadlines of this hold. When that clock is set back while the lock is held, the deadlines still
// move on with the time that passes.
func (l *Lock) clock() time.Time {
	at, passed := l.c.wall(), l.wall.Add(time.Since(l.start)).Truncate(time.Millisecond)
	if at.Before(passed) {
		return passed
	}
	return at
}

// gone ends the handle because etcd says that another holds the lock, or nobody, and finds out who ended this hold.
func (l *Lock) gone(ctx context.Context, now *metadata.Document) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), noteTimeout)
	defer cancel()
	lost, err := l.ask(ctx)
	if err != nil || lost == nil {
		lost = l.lostError()
		if now != nil && now.Token != 0 {
			lost.Holder = now
		}
	}
	return l.lose(lost)
}

// or is the reason why the handle ended, where it did, because it says more than the error that followed from it.
func (l *Lock) or(err error) error {
	if ended := l.err(); ended != nil {
		return ended
	}
	return err
}
