package mutex

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/clustermutex/unlocker/internal/locktxn"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// Adopt is a handle of a hold that is there already: of a lock that another process took, a parent or one that handed
// its work on, and whose uuid it told this one. It does what a handle of [Client.Lock] does: its context ends when the
// hold does, Alive extends it, Guard and Token fence with it.
//
// Both processes may have a handle at the same time; they share one hold. Each sees when the other extends it. Unlock
// of either ends it for both, and the other learns of it as of a loss: so agree on one who gives it back, usually the
// one who took it, and let the other [Lock.Detach]. Who hands its hold on for good detaches, and leaves the Unlock to
// the one who adopts it.
//
// The time that is left is counted from what the record says and this machine's clock, which must not be behind by more
// than the safety margin, as for every holder. A hold whose time is over, but which nobody has removed yet, is extended
// by the adoption.
//
// Of the options only those about time count, and Defaults of the client do not. Without them Alive puts off alert and
// auto-unlock by as much as whoever wrote the deadlines last; where the record does not tell that, Alive is an error,
// and where it has no readable deadline the handle's context has ended, and only Unlock is of use.
//
// The error is a [*LostError], an [ErrNotHeld], when another holds the lock, or nobody.
func (c *Client) Adopt(ctx context.Context, name, uuid string, opts ...Option) (*Lock, error) {
	l, err := c.adopt(ctx, name, uuid, opts)
	if _, isLost := errors.AsType[*LostError](err); err == nil || isLost {
		return l, err
	}
	return nil, fmt.Errorf("adopt %q: %w", name, err)
}

func (c *Client) adopt(ctx context.Context, name, uuid string, opts []Option) (*Lock, error) {
	switch err := metadata.CheckName(name); {
	case c.isClosed():
		return nil, ErrClosed
	case err != nil:
		return nil, err
	case uuid == "":
		return nil, errors.New("the uuid of the hold is empty")
	}
	set, err := chosen(opts)
	if err != nil {
		return nil, err
	}
	outer := FromContext(ctx)
	ctx, cancel := context.WithTimeout(ctx, c.opts.RequestTimeout)
	defer cancel()
	start, wall := time.Now(), c.wall()
	r, err := c.send(ctx, locktxn.Find(c.layout, name, uuid))
	if err != nil {
		return nil, err
	}
	doc := c.record(name, r, 0)
	if doc.Token == 0 || doc.UUID != uuid {
		return nil, c.notThere(&doc, uuid, r)
	}
	if err := set.adopt(&doc.Record); err != nil {
		return nil, err
	}
	l := &Lock{
		c: c, set: set, held: locktxn.Hold{Lock: name, UUID: uuid, Token: doc.Token}, asked: name, at: placeOf(""),
		outer: outer,
		start: start, wall: latest(wall, lastWord(&doc.Record)), adopted: true,
		beyond: set.expectedRunTime > set.autoUnlockAfter,
		goal:   doc.AlertAt, alertAt: doc.AlertAt,
	}
	l.remember(&doc)
	return l, l.live(ctx, &doc)
}

// chosen are the settings that the options of an adoption make, still without what the record says.
func chosen(opts []Option) (s settings, err error) {
	for _, o := range opts {
		if o != nil {
			o(&s)
		}
	}
	return s, errors.Join(s.problems...)
}

// adopt fills in from the record what the options left open: the deadlines as far from now as whoever wrote them last
// wanted. When that was a heartbeat, the alert had come closer since the last real progress, so with a given life it
// keeps its part of it.
func (s *settings) adopt(r *metadata.Record) error {
	word := lastWord(r)
	alert := r.AlertAt.Sub(word)
	unlock := r.AutoUnlockAt.Sub(word)
	if alert <= 0 {
		alert = r.AlertAt.Sub(r.LockedAt)
	}
	known := !word.IsZero() && !r.AlertAt.IsZero() && !r.AutoUnlockAt.IsZero() && alert > 0 && alert <= maxDuration &&
		unlock >= minAutoUnlockAfter && unlock <= maxDuration
	switch given := s.autoUnlockAfter; {
	case s.expectedRunTime > 0:
	case given == 0 && known:
		s.expectedRunTime = alert
	case given > 0 && known && alert < unlock:
		s.expectedRunTime = time.Duration(float64(given) * (float64(alert) / float64(unlock)))
	case given > 0:
		s.expectedRunTime = given
	}
	if s.autoUnlockAfter == 0 && known {
		s.autoUnlockAfter = unlock
	}
	if s.safetyMargin == 0 {
		s.safetyMargin = min(max(s.autoUnlockAfter, unlock, 0)/10, maxSafetyMargin)
	}
	switch {
	case s.autoUnlockAfter == 0: // said when it is needed
		return nil
	case s.maximumHold > 0:
		s.expectedRunTime = min(s.expectedRunTime, s.maximumHold)
		return s.check()
	case s.expectedRunTime > s.autoUnlockAfter: // somebody else has a heartbeat
		relaxed := *s
		relaxed.expectedRunTime = s.autoUnlockAfter
		return relaxed.check()
	}
	return s.check()
}

// lastWord is when the holder wrote its deadlines last, by its clock; zero when the record does not tell.
func lastWord(r *metadata.Record) time.Time {
	if r.Alive != nil && !r.Alive.At.IsZero() {
		return latest(r.Alive.At, r.LockedAt)
	}
	return r.LockedAt
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// notThere says what became of a hold that could not be adopted.
func (c *Client) notThere(doc *metadata.Document, uuid string, r answer) *LostError {
	lost := &LostError{Lock: doc.Name, UUID: uuid, Certain: true, At: c.wall()}
	for _, kv := range r.keys(1).Kvs {
		if e, err := protocol.Unmarshal[metadata.Ending](kv.Value); err == nil {
			lost.Ending = &e
		}
	}
	if doc.Token != 0 {
		lost.Holder = doc
	}
	return lost
}

// remember keeps what the record says of the work, so that a heartbeat repeats it.
func (l *Lock) remember(doc *metadata.Document) {
	i := slices.IndexFunc(doc.Fields, func(f metadata.Field) bool { return f.Name == metadata.FieldAlive })
	if i >= 0 {
		l.said = doc.Fields[i].ModRevision
	}
	if doc.Alive != nil {
		l.progress = doc.Alive.Progress
	}
	if l.goal.IsZero() {
		l.goal = l.wall.Add(l.set.expectedRunTime)
	}
}

// live starts the handle of an adopted hold, after it extended one whose time is over.
func (l *Lock) live(ctx context.Context, doc *metadata.Document) error {
	l.prepare()
	l.until = l.start
	l.counted = l.c.moment()
	if !doc.AutoUnlockAt.IsZero() {
		l.until = l.start.Add(doc.AutoUnlockAt.Sub(l.wall) - l.set.safetyMargin)
		if time.Until(l.until) <= 0 && l.set.autoUnlockAfter > 0 {
			if _, err := l.say(ctx, true, ""); err != nil {
				l.finish(err)
				return err
			}
		}
	}
	return l.begin()
}

// ErrDetached is the cause with which a handle's context ends when its holder gives up the handle but not the hold. It
// is an ErrNotHeld.
var ErrDetached = fmt.Errorf("the handle was detached from its hold: %w", ErrNotHeld)

// Detach ends the handle and leaves the hold as it is: to the process that has adopted it or will, by name and
// [Lock.UUID], and otherwise to the auto-unlock. The context ends, with [ErrDetached]; a heartbeat stops; Unlock does
// nothing from then on. All handles of the hold in this process that [Reentrant] made are detached with it.
func (l *Lock) Detach() {
	switch {
	case l.none():
		return
	case l.head:
		for _, one := range l.group.locks {
			one.Detach()
		}
		return
	}
	hold := l.root()
	if hold.finish(ErrDetached) && hold.doubt {
		hold.c.forbidLater(hold.held.Lock, hold.held.UUID)
	}
}

// forbidLater sees to it that no late sending of an acquisition takes the lock once more when whoever adopted its hold
// gave it back.
func (c *Client) forbidLater(lock, uuid string) {
	c.later(chore{lock: lock, uuid: uuid, until: time.Now().Add(protocol.CancelledTTL),
		do: func(ctx context.Context) error {
			lease, err := c.markLease(ctx, &c.marks)
			if err == nil {
				_, err = c.send(ctx, locktxn.Forbid(c.layout, lock, uuid, lease))
			}
			return err
		}})
}
