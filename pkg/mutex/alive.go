package mutex

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/locktxn"
	"github.com/clustermutex/unlocker/internal/locktxn/etcdretry"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// prepare makes what a handle needs before it is published.
func (l *Lock) prepare() {
	l.lost = make(chan struct{})
	l.extension.mutex = make(chan struct{}, 1)
	l.ctx, l.cancel = context.WithCancelCause(context.WithValue(context.Background(), handleKey{}, l))
	l.background, l.endBackground = context.WithCancel(context.Background())
}

// begin starts what runs while the hold lasts: its timer, its watch and its heartbeat.
func (l *Lock) begin() error {
	c := l.c
	c.holds.Store(l.held.UUID, l)

	l.mu.Lock() // the timer may fire before it is stored
	l.deadline.timer = time.AfterFunc(min(l.timeLeft(), watchAfter), l.onTimer)
	l.stopOnClose = context.AfterFunc(c.ctx, func() { l.endWith(ErrClosed) })
	l.mu.Unlock()
	if l.set.maximumHold > 0 {
		c.spawn(func() { l.sendHeartbeats(l.background) })
	}
	if c.isClosed() {
		if !l.origin.adopted {
			l.Unlock()
		}
		return ErrClosed
	}
	return nil
}

const (
	// watchAfter is how long a hold must last to be watched. Most are shorter, and no lock is removed that quickly:
	// watching each of them costs a tenth of the throughput of 64 busy clients. One watch on the whole prefix would
	// cost the holder nothing, but every client of a cluster would read the events of all locks of all other clients.
	watchAfter = 100 * time.Millisecond

	// holderRecheck is how often a holder reads its record without an event, in case a watch went silent or lost one.
	holderRecheck = time.Minute
)

// onTimer runs when the hold is no longer short, then every sleepCheck, and at the local deadline, which an extension
// may have moved. One timer serves all three, because a timer is a large part of the cost of a short hold.
func (l *Lock) onTimer() {
	l.mu.Lock()
	left := l.timeLeft()
	watch := !l.deadline.watched
	l.deadline.watched = true
	if left > 0 {
		l.deadline.timer.Reset(min(left, sleepCheck))
	}
	l.mu.Unlock()
	switch {
	case left <= 0:
		l.runOut()
	case watch:
		l.c.spawn(l.watchHold)
	}
}

func (l *Lock) watchHold() {
	from, end := locktxn.WatchedRange(l.c.layout, l.held.Lock)
	l.c.retry.Follow(l.background, holderRecheck, func(events []*clientv3.Event) bool {
		if len(events) == 0 && l.checkDeadline() != nil {
			return true
		}
		timeout := holderRecheck / 3
		gone := l.endedBy(events)
		hasMoreTime := l.applyEvents(events)
		if gone {
			timeout = explainTimeout
		} else if len(events) > 0 && !hasMoreTime {
			return false
		}
		ctx, cancel := context.WithTimeout(l.background, timeout)
		defer cancel()
		lost, err := l.verify(ctx)
		if err != nil && gone && l.err() == nil {
			lost = l.lostError(err)
		}
		if lost == nil {
			return false
		}
		if !l.releasedMeanwhile() {
			l.lose(lost)
		}
		return true
	}, etcdretry.WatchTarget{Key: from, Options: []clientv3.OpOption{clientv3.WithRange(end)}})
}

// endedBy reports whether one of the events ended the hold. Events older than the hold do not count: a watch on a slow
// member begins in the past.
func (l *Lock) endedBy(events []*clientv3.Event) bool {
	key := l.c.layout.Field(l.held.Lock, lockrecord.FieldUUID)
	for _, e := range events {
		if string(e.Kv.Key) == key && e.Kv.ModRevision > l.held.Token &&
			(e.Type == clientv3.EventTypeDelete || string(e.Kv.Value) != l.held.UUID) {
			return true
		}
	}
	return false
}

// Alive reports progress and extends the lock, like Extend of redsync and Refresh of redislock: [AlertAfter] and
// [AutoUnlockAfter] count from now again. The progress, joined by spaces, is shown with the lock.
//
// nil means that etcd confirmed the hold. A [*LostError] means that the handle's context has ended, because the hold
// is over or, after [Lock.Deadline], may be: stop the work, and Unlock what is left. After any other error the hold
// stands as before, with its previous deadline.
func (l *Lock) Alive(ctx context.Context, progress ...string) error {
	return l.alive(ctx, nil, progress)
}

// AliveFor is [Lock.Alive] with other times, which count for this call: the alert in alertAfter, the auto-unlock in
// autoUnlockAfter. No deadline moves back, so shorter ones than those in the record change nothing.
func (l *Lock) AliveFor(ctx context.Context, alertAfter, autoUnlockAfter time.Duration, progress ...string) error {
	return l.alive(ctx, &span{alertAfter, autoUnlockAfter}, progress)
}

// span is how far from now an extension moves the deadlines.
type span struct{ alertAfter, autoUnlockAfter time.Duration }

func (l *Lock) span() span { return span{l.set.alertAfter, l.set.autoUnlockAfter} }

// alive extends the lock, and those that the work needs, too, by their own times or by others.
func (l *Lock) alive(ctx context.Context, other *span, progress []string) error {
	if l.hasNoHold() {
		return errNoHold
	}
	if err := l.err(); err != nil && l.reentry.of != nil && !l.forGroup {
		return err
	}
	return each(l.members(), func(hold *Lock) error { return hold.aliveAlone(ctx, other, progress) })
}

func (l *Lock) aliveAlone(ctx context.Context, other *span, progress []string) error {
	by := l.span()
	if other != nil {
		by = *other
		if err := l.set.checkSpan(by); err != nil {
			return fmt.Errorf("alive %q: %w", l.held.Lock, err)
		}
	}
	err := l.extend(ctx, by, false, strings.Join(progress, " "))
	if err == nil || errors.Is(err, ErrNotHeld) {
		return err
	}
	return fmt.Errorf("alive %q: %w", l.held.Lock, err)
}

// maxHeartbeatInterval bounds the time between two heartbeats, so that a long hold has nearly all of its time left when
// etcd fails.
const maxHeartbeatInterval = 20 * time.Second

// sendHeartbeats sends heartbeats until ctx ends: one every third of the time that an extension gives, at most
// [maxHeartbeatInterval] apart, and more often while they fail. An attempt may take as long as that interval.
func (l *Lock) sendHeartbeats(ctx context.Context) {
	interval := min((l.set.autoUnlockAfter-l.set.safetyMargin)/3, maxHeartbeatInterval)
	for next := interval; etcdretry.Sleep(ctx, next); {
		if l.reachedMaximumHold() {
			l.c.log(slog.LevelWarn, "the heartbeat ends: the lock was held for its maximum",
				l.logAttributes(slog.Duration("maximum_hold", l.set.maximumHold))...)
			return
		}
		attempt, cancel := context.WithTimeout(ctx, interval)
		err := l.extend(attempt, l.span(), true, "")
		cancel()
		next = interval
		if err != nil && l.err() == nil && ctx.Err() == nil {
			next = min(interval, etcdretry.Jitter(etcdretry.MaxBackoff))
			l.c.log(slog.LevelWarn, "heartbeat failed", l.logAttributes(slog.Any("error", err))...)
		}
	}
}

// reachedMaximumHold reports whether heartbeats can no longer extend the hold. Times in the record are rounded.
func (l *Lock) reachedMaximumHold() bool {
	const rounding = 10 * time.Millisecond
	return l.set.maximumHold > 0 && time.Since(l.began.monotonic) >= l.set.maximumHold-l.set.safetyMargin-rounding
}

// maxHeartbeatTries bounds how often a heartbeat is sent: again if another process with the uuid extended the hold.
const maxHeartbeatTries = 5

// extend moves the deadlines. Extensions of one hold take turns, so that the last one wins.
func (l *Lock) extend(ctx context.Context, by span, heartbeat bool, progress string) (err error) {
	if err := l.checkDeadline(); err != nil {
		return err
	}
	if by.autoUnlockAfter == 0 {
		return errors.New("its record does not say how long it was taken for: adopt it with AutoUnlockAfter")
	}
	defer func(began time.Time) {
		notify(l.c.opts.Hooks.ExtendEnded,
			ExtendEnded{Lock: l, Result: resultOf(err, ResultExtended), Heartbeat: heartbeat,
				Duration: time.Since(began), Err: err})
	}(time.Now())
	ctx, cancel := context.WithDeadline(ctx, l.Deadline())
	defer cancel()
	defer context.AfterFunc(l.background, cancel)()
	select {
	case l.extension.mutex <- struct{}{}:
		defer func() { <-l.extension.mutex }()
	case <-ctx.Done():
		return l.causeOr(context.Cause(ctx))
	}
	for range maxHeartbeatTries {
		again, err := l.extendOnce(ctx, by, heartbeat, progress)
		if !again {
			return err
		}
	}
	return errors.New("other processes with the same uuid keep extending it")
}

// extendOnce makes one extension. again reports that a heartbeat must be sent again, because the record has newer
// progress.
func (l *Lock) extendOnce(ctx context.Context, by span, heartbeat bool, progress string) (again bool, err error) {
	start := l.c.moment()
	at := l.clock()
	alertAt, autoUnlockAt, progress := l.planExtension(at, by, heartbeat, progress)
	alive := lockrecord.FormatAlive(at, progress)
	txn := locktxn.Alive(l.c.layout, l.held, metadata.FormatTime(alertAt), metadata.FormatTime(autoUnlockAt), alive)
	if heartbeat {
		txn = locktxn.Heartbeat(l.c.layout, l.held, metadata.FormatTime(alertAt), metadata.FormatTime(autoUnlockAt),
			alive, l.extension.lastAliveRevision)
	}
	r, err := l.c.retry.Send(ctx, txn)
	if err != nil {
		return false, l.causeOr(err)
	}
	stored, again, err := l.readExtension(ctx, r, autoUnlockAt, alive)
	if r.Succeeded {
		l.noteAlive(r.Header.Revision, heartbeat, progress)
	}
	if again || err != nil {
		return again, err
	}
	if stored.Before(autoUnlockAt) {
		autoUnlockAt = stored
	}
	l.extendUntil(start.monotonic.Add(autoUnlockAt.Sub(at)-l.set.safetyMargin), start, autoUnlockAt)
	return false, l.err()
}

// readExtension returns the auto-unlock in the record after an extension to autoUnlockAt. again reports that another
// process with the uuid reported progress first; only heartbeats check for that.
func (l *Lock) readExtension(ctx context.Context, r etcdretry.Response, autoUnlockAt time.Time, alive string) (
	stored time.Time, again bool, err error) {
	var now metadata.FullRecord
	if others, moved := locktxn.AliveResult(r.TxnResponse); r.Succeeded && moved {
		return autoUnlockAt, false, nil
	} else if r.Succeeded {
		now = l.decode(locktxn.Fields(l.c.layout, others))
	} else if now = readRecord(l.c.layout, l.held.Lock, r, 0); !l.isHeldIn(&now) {
		return time.Time{}, false, l.loseRemoved(ctx, &now)
	}
	other := l.applyProgress(&now, alive)
	l.applyRecord(&now)
	switch {
	case other && !r.Succeeded:
		return time.Time{}, true, nil
	case now.AutoUnlockAt.IsZero():
		return time.Time{}, false, errors.New("its auto_unlock_at was removed or made unreadable")
	}
	return now.AutoUnlockAt, false, nil
}

// noteAlive notes that the record has this handle's alive field, at this revision.
func (l *Lock) noteAlive(revision int64, heartbeat bool, progress string) {
	l.extension.lastAliveRevision = revision
	if heartbeat {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.extension.progress = progress
}

// applyProgress takes over the progress that another process with the uuid, such as a child script, reported after this
// handle last did, and reports whether there was any. What this extension wrote itself does not count.
func (l *Lock) applyProgress(now *metadata.FullRecord, alive string) bool {
	f := fieldOf(now, lockrecord.FieldAlive)
	last := l.extension.lastAliveRevision
	l.extension.lastAliveRevision = f.ModRevision
	if f.ModRevision == 0 || f.ModRevision == last || f.Value == alive {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.extension.alertFloor = now.AlertAt; l.extension.alertFloor.After(l.extension.alertTarget) {
		l.extension.alertTarget = l.extension.alertFloor
	}
	if now.Alive != nil {
		l.extension.progress = now.Alive.Progress
	}
	return true
}

// planExtension returns the deadlines and the progress that an extension writes, and stores them. A heartbeat never
// exceeds the maximum hold, repeats the progress of the last Alive of any process, and moves the alert neither back nor
// past the auto-unlock. No extension sets the alert before one that an operator granted.
func (l *Lock) planExtension(at time.Time, by span, heartbeat bool, progress string) (
	alertAt, autoUnlockAt time.Time, note string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := &l.extension
	autoUnlockAt = at.Add(by.autoUnlockAfter)
	if end := l.began.wall.Add(l.set.maximumHold); heartbeat && l.set.maximumHold > 0 && autoUnlockAt.After(end) {
		autoUnlockAt = end
	}
	if !heartbeat {
		e.alertTarget = at.Add(by.alertAfter)
		e.alertFloor = time.Time{}
		e.progress = progress
	}
	alertAt = e.alertTarget
	if heartbeat || !e.alertAfterUnlock {
		alertAt = protocol.Later(protocol.Earlier(alertAt, autoUnlockAt), e.alertFloor)
	}
	if l.inbox != nil {
		alertAt = protocol.Later(alertAt, l.inbox.alertAt)
	}
	return alertAt, autoUnlockAt, e.progress
}
