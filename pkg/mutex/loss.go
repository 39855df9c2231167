package mutex

import (
	"context"
	"log/slog"
	"time"

	"github.com/clustermutex/unlocker/internal/locktxn"
	"github.com/clustermutex/unlocker/internal/locktxn/etcdretry"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// explainTimeout is how long a call that is over tries to read what explains its result: who removed the lock, who is
// ahead in the queue, whether an unlocker runs.
const explainTimeout = 250 * time.Millisecond

// err returns why the handle ended, nil while it is held.
func (l *Lock) err() error {
	if l.reentry.of != nil {
		return context.Cause(l.ctx) // of this handle, or of the hold
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cause
}

// causeOr returns why the handle ended, if it did: that says more than err, which followed from it.
func (l *Lock) causeOr(err error) error {
	if ended := l.err(); ended != nil {
		return ended
	}
	return err
}

func (l *Lock) isHeldIn(now *metadata.FullRecord) bool {
	return now.Token == l.held.Token && now.UUID == l.held.UUID
}

// checkDeadline ends the handle if its time ran out while the machine slept, before the timer fires.
func (l *Lock) checkDeadline() error {
	l.mu.Lock()
	over := l.cause == nil && !l.deadline.until.IsZero() && l.timeLeft() <= 0
	l.mu.Unlock()
	if over {
		l.runOut()
	}
	return l.err()
}

func (l *Lock) runOut() {
	lost := &LostError{Name: l.held.Lock, UUID: l.held.UUID, Token: l.held.Token, At: l.c.wall()}
	if l.reachedMaximumHold() {
		lost.maximumHold = l.set.maximumHold
	}
	l.lose(lost)
}

// loseRemoved ends the handle because its hold is no longer in etcd, and finds out how the hold ended.
func (l *Lock) loseRemoved(ctx context.Context, now *metadata.FullRecord) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), explainTimeout)
	defer cancel()
	lost, err := l.verify(ctx)
	if err != nil || lost == nil {
		lost = l.lostError(err)
		if now != nil && now.Token != 0 {
			lost.Holder = now
		}
	}
	return l.lose(lost)
}

// verify asks etcd whether the hold stands. It returns nil if so, else how the hold was lost.
func (l *Lock) verify(ctx context.Context) (*LostError, error) {
	r, err := l.c.retry.Send(ctx, locktxn.ReadHold(l.c.layout, l.held))
	if err != nil {
		return nil, err
	}
	if r.Succeeded {
		l.applyFields(locktxn.Fields(l.c.layout, r.Keys(0)))
		return nil, nil
	}
	return l.c.readLoss(l.held, r, 0, 1), nil
}

// readLoss returns how a hold ended, from the operations of an answer that read its ending and the record of the lock.
func (c *Client) readLoss(h locktxn.Hold, r etcdretry.Response, endingOp, recordOp int) *LostError {
	lost := &LostError{Name: h.Lock, UUID: h.UUID, Token: h.Token, Certain: true, Ending: c.readEnding(r, endingOp),
		At: c.wall()}
	if now := readRecord(c.layout, h.Lock, r, recordOp); now.Token != 0 {
		lost.Holder = &now
	}
	return lost
}

// readEnding returns the ending that operation op read; nil if there is none that says how the hold ended.
func (c *Client) readEnding(r etcdretry.Response, op int) *metadata.Ending {
	for _, kv := range r.Keys(op).Kvs {
		if e, err := protocol.Unmarshal[metadata.Ending](kv.Value); err == nil && e.Cause != "" {
			return &e
		}
	}
	return nil
}

// lostError returns an error that says that the hold is certainly gone, but not how, because that was not read.
func (l *Lock) lostError(unread error) *LostError {
	return &LostError{Name: l.held.Lock, UUID: l.held.UUID, Token: l.held.Token, Certain: true, At: l.c.wall(),
		unread: unread}
}

// lose ends the handle because the hold is gone or may be.
func (l *Lock) lose(why *LostError) *LostError {
	if l.endWith(why) {
		l.c.log(slog.LevelWarn, "lock lost", l.logAttributes(slog.Any("error", why))...)
		notify(l.c.opts.Hooks.Lost,
			Lost{Lock: l, Reason: why.Reason(), HoldTime: time.Since(l.began.monotonic), Err: why})
	}
	return why
}

// endWith ends the handle with the first cause; later ones change nothing.
func (l *Lock) endWith(cause error) (first bool) {
	l.mu.Lock()
	first = l.cause == nil
	if first {
		l.cause = cause
		// Code that learns of the loss may close the client at once; Close waits only for work known by then.
		if lost, isLost := cause.(*LostError); isLost && lost.Certain { // else Unlock may find out
			l.cancelAcquisition()
		}
	}
	l.mu.Unlock()
	if !first {
		return false
	}
	l.cancel(cause)
	if _, isLost := cause.(*LostError); isLost {
		close(l.lost)
	}
	l.endBackground()
	l.c.holds.CompareAndDelete(l.held.UUID, l) // unless another handle adopted the hold
	if l.deadline.timer != nil {               // else it never began
		l.deadline.timer.Stop()
		l.stopOnClose()
	}
	if l.origin.lease != nil && cause != ErrUnlocked {
		l.c.leases.drop(l.origin.lease) // so that the next in the queue need not wait for this process
	}
	return true
}

// cancelAcquisition prevents, in the background, that acquisition requests still in flight are committed after the end
// of the hold.
func (l *Lock) cancelAcquisition() {
	if l.origin.cancel != nil {
		l.c.cleanups.later(l.wanted, l.held.UUID, protocol.CancelledTTL, l.origin.cancel)
	}
}
