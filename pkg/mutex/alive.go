package mutex

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/clustermutex/unlocker/internal/locktxn"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// Alive says that the work makes progress: the alert and the auto-unlock are put off, by the same durations as at the
// acquisition and counted from now. The words of progress, if any, are shown to people with the lock.
//
// nil means that etcd confirmed the hold. A [*LostError] means that it is over; the handle's context has ended then.
// After any other error the hold stands as it stood, until the deadline it had.
func (l *Lock) Alive(ctx context.Context, progress ...string) error {
	if l.none() {
		return errNoHold
	}
	if l.of != nil {
		if err := l.err(); err != nil {
			return err
		}
		if l.group != nil { // the work needs all of them
			return l.group.Alive(ctx, progress...)
		}
	}
	err := l.root().extend(ctx, false, strings.Join(progress, " "))
	if err == nil || errors.Is(err, ErrNotHeld) {
		return err
	}
	return fmt.Errorf("alive %q: %w", l.held.Lock, err)
}

// beat is the heartbeat: an extension each third of the time that is left after one, with at most a third of that for
// an attempt, and as often as etcd lets it while it fails.
func (l *Lock) beat() {
	interval := (l.set.autoUnlockAfter - l.set.safetyMargin) / 3
	for next := interval; pause(l.watch, next); {
		if time.Since(l.start) >= l.set.maximumHold-l.set.safetyMargin {
			l.c.line(slog.LevelWarn, "the heartbeat ends: the lock was held for its maximum",
				l.about(slog.Duration("maximum_hold", l.set.maximumHold))...)
			return
		}
		ctx, cancel := context.WithTimeout(l.watch, interval)
		err := l.extend(ctx, true, "")
		cancel()
		next = interval
		if err != nil && l.watch.Err() == nil {
			next = min(interval, jitter(MaxRetryDelay))
			l.c.line(slog.LevelWarn, "heartbeat failed", l.about(slog.Any("error", err))...)
		}
	}
}

// extend moves the deadlines. Extensions of one hold take turns, so that the last one wins.
func (l *Lock) extend(ctx context.Context, heartbeat bool, progress string) (err error) {
	if err := l.awake(); err != nil {
		return err
	}
	if l.set.autoUnlockAfter == 0 {
		return errors.New("its record does not tell for how long it was taken: adopt it with AutoUnlockAfter")
	}
	defer func(began time.Time) { l.extended(began, heartbeat, err) }(time.Now())
	ctx, cancel := context.WithDeadline(ctx, l.Deadline())
	defer cancel()
	defer context.AfterFunc(l.watch, cancel)()
	select {
	case l.turn <- struct{}{}:
		defer func() { <-l.turn }()
	case <-ctx.Done():
		return l.or(context.Cause(ctx))
	}
	for range maxOvertaken {
		again, err := l.say(ctx, heartbeat, progress)
		if !again {
			return err
		}
	}
	return errors.New("others with the same uuid extend it all the time")
}

// maxOvertaken bounds how often a heartbeat begins anew because somebody else with the uuid extended the hold
// meanwhile.
const maxOvertaken = 5

// say makes one extension. Of a heartbeat it tells that another one is needed, because it knew less than the record.
func (l *Lock) say(ctx context.Context, heartbeat bool, progress string) (again bool, err error) {
	start := l.c.moment()
	at := l.clock()
	autoUnlockAt := at.Add(l.set.autoUnlockAfter)
	if heartbeat && l.set.maximumHold > 0 {
		if end := l.wall.Add(l.set.maximumHold); autoUnlockAt.After(end) {
			autoUnlockAt = end
		}
	}
	alertAt, progress := l.note(at, autoUnlockAt, heartbeat, progress)
	alive := metadata.FormatAlive(at, progress)
	txn := locktxn.Alive(l.c.layout, l.held, metadata.FormatTime(alertAt), metadata.FormatTime(autoUnlockAt), alive)
	if heartbeat {
		txn = locktxn.Beat(l.c.layout, l.held, metadata.FormatTime(alertAt), metadata.FormatTime(autoUnlockAt), alive,
			l.said)
	}
	r, err := l.c.send(ctx, txn)
	if err != nil {
		return false, l.or(err)
	}
	if r.Succeeded {
		l.said = r.Header.Revision
	} else {
		now := l.c.record(l.held.Lock, r, 0)
		if now.Token != l.held.Token || now.UUID != l.held.UUID {
			return false, l.gone(ctx, &now)
		}
		other := l.overtaken(&now, alive)
		if other && heartbeat {
			return true, nil
		}
		if !heartbeat && !now.AutoUnlockAt.IsZero() && !saidSo(&now, alive) {
			if err := l.word(ctx, alertAt, progress, alive); err != nil {
				return false, err
			}
		}
		// The deadline in etcd was later or, when an earlier sending was committed, is this one.
		if autoUnlockAt = now.AutoUnlockAt; autoUnlockAt.IsZero() {
			return false, errors.New("somebody removed its auto_unlock_at or made it unreadable")
		}
	}
	l.extendUntil(start.monotonic.Add(autoUnlockAt.Sub(at)-l.set.safetyMargin), start)
	return false, l.err()
}

// saidSo tells whether the record has this word about the work.
func saidSo(now *metadata.Document, alive string) bool {
	return slices.ContainsFunc(now.Fields, func(f metadata.Field) bool {
		return f.Name == metadata.FieldAlive &&
			f.Value == alive
	})
}

// word says how the work goes, of a hold that somebody else extended for longer than this handle would.
func (l *Lock) word(ctx context.Context, alertAt time.Time, progress, alive string) error {
	r, err := l.c.send(ctx, locktxn.Progress(l.c.layout, l.held, metadata.FormatTime(alertAt), alive))
	if err != nil {
		return l.or(err)
	}
	if !r.Succeeded {
		now := l.c.record(l.held.Lock, r, 0)
		return l.gone(ctx, &now)
	}
	l.said = r.Header.Revision
	l.mu.Lock()
	defer l.mu.Unlock()
	l.progress = progress
	return nil
}

// overtaken takes over what somebody else with the uuid, such as a script below this process, said of the work since
// this handle did. What stands in the record because of the word that is just being said is no such thing.
func (l *Lock) overtaken(now *metadata.Document, said string) bool {
	i := slices.IndexFunc(now.Fields, func(f metadata.Field) bool { return f.Name == metadata.FieldAlive })
	if i < 0 {
		l.said = 0
		return false
	}
	f := now.Fields[i]
	if f.ModRevision == l.said {
		return false
	}
	if l.said = f.ModRevision; f.Value == said {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.alertAt = now.AlertAt; l.alertAt.After(l.goal) {
		l.goal = l.alertAt
	}
	if now.Alive != nil {
		l.progress = now.Alive.Progress
	}
	return true
}

// note keeps what an extension says beyond the deadline, and tells when people are to be alerted. A heartbeat repeats
// what the last Alive said, whoever did, and puts the alert neither back nor after the auto-unlock.
func (l *Lock) note(at, autoUnlockAt time.Time, heartbeat bool, progress string) (time.Time, string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !heartbeat {
		l.goal, l.progress, l.alertAt = at.Add(l.set.expectedRunTime), progress, time.Time{}
		if l.beyond {
			return l.goal, progress
		}
	}
	alertAt := autoUnlockAt
	if l.goal.Before(alertAt) {
		alertAt = l.goal
	}
	if alertAt.Before(l.alertAt) {
		alertAt = l.alertAt
	}
	return alertAt, l.progress
}

// clock is the wall clock for the deadlines of this hold. When that clock is set back while the lock is held, the
// deadlines still move on with the time that passes.
func (l *Lock) clock() time.Time {
	at := l.c.wall()
	passed := l.wall.Add(time.Since(l.start)).Truncate(time.Millisecond)
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
