package mutex

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/locktxn"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// Adopt returns a handle of an existing hold, given the lock's name and the hold's uuid: of a lock that another process
// took. The handle works like one from [Client.Lock]. If the lock has another holder, or none, the error is a
// [*LostError].
//
// Both processes may have a handle at the same time; they share one hold, and each sees the other's extensions. Unlock
// by either ends it for both, which the other sees as a loss. So one of them unlocks, and the other calls
// [Lock.Detach]. The record says that the hold is detached from the process that took it, whose end proves nothing from
// then on, except with [OnBehalfOfHolder].
//
// The time left follows from the record and this machine's clock, which must not be behind by more than the safety
// margin. If the time is up but the hold has not been removed yet, Adopt extends it.
//
// Only [OnBehalfOfHolder] and options about time apply; the client's Defaults do not. What they leave open is as the
// last writer of the deadlines set it. If the record does not say by how much it is extended, Alive returns an error.
// If the record has no readable deadline, the handle's context has ended, and only Unlock is useful.
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
	var set settings
	set.apply(opts)
	if err := errors.Join(set.problems...); err != nil {
		return nil, err
	}
	outer := FromContext(ctx)
	ctx, cancel := context.WithTimeout(ctx, c.opts.RequestTimeout)
	defer cancel()
	began := c.moment()
	r, err := c.retry.Send(ctx, locktxn.FindHold(c.layout, name, uuid))
	if err != nil {
		return nil, err
	}
	record := readRecord(c.layout, name, r, 0)
	if record.Token == 0 || record.UUID != uuid {
		return nil, c.readLoss(locktxn.Hold{Lock: name, UUID: uuid}, r, 1, 0)
	}
	if err := set.completeFrom(&record.Record); err != nil {
		return nil, err
	}
	hold := locktxn.Hold{Lock: name, UUID: uuid, Token: record.Token}
	if !set.onBehalfOfHolder && (record.Process == nil || !record.Process.Detached) {
		if err := c.detach(ctx, hold); err != nil {
			return nil, err
		}
	}
	l := &Lock{
		c: c, set: set, held: hold, wanted: name, callSite: callSiteOf(""),
		began: moment{began.monotonic, protocol.Later(began.wall, lastAlive(&record.Record))},
		outer: outer, origin: origin{adopted: true, detached: true},
		extension: extension{
			alertTarget: record.AlertAt, alertFloor: record.AlertAt,
			alertAfterUnlock: set.maximumHold == 0 && set.alertAfter > set.autoUnlockAfter,
		},
	}
	l.loadExtension(&record)
	return l, l.startAdopted(ctx, &record)
}

// OnBehalfOfHolder makes [Client.Adopt] leave the process that took the lock its holder: the handle only acts for it,
// like a child process that calls Alive or releases the lock. When that process ends, the lock is abandoned.
func OnBehalfOfHolder() Option { return func(s *settings) { s.onBehalfOfHolder = true } }

// detach records that the hold outlives the process that took it. The error is a [*LostError] if the hold is over.
func (c *Client) detach(ctx context.Context, h locktxn.Hold) error {
	r, err := c.retry.Send(ctx, locktxn.Detach(c.layout, h))
	if err != nil || r.Succeeded {
		return err
	}
	return c.readLoss(h, r, 0, 1)
}

// completeFrom fills in what the options left open: the deadlines are as far from now as their last writer set them.
func (s *settings) completeFrom(r *metadata.Record) error {
	alert, unlock, known := durations(r)
	if known {
		s.alertAfter = cmp.Or(s.alertAfter, min(alert, cmp.Or(s.maximumHold, s.autoUnlockAfter, alert)))
		s.autoUnlockAfter = cmp.Or(s.autoUnlockAfter, unlock)
	}
	s.alertAfter = cmp.Or(s.alertAfter, s.autoUnlockAfter)
	if s.safetyMargin == 0 {
		s.safetyMargin = min(max(cmp.Or(s.autoUnlockAfter, unlock), 0)/10, maxSafetyMargin)
	}
	if s.autoUnlockAfter == 0 { // extend reports it when needed
		return nil
	}
	if s.maximumHold > 0 {
		s.alertAfter = min(s.alertAfter, s.maximumHold)
		return s.check()
	}
	checked := *s
	checked.alertAfter = min(s.alertAfter, s.autoUnlockAfter) // another process may have a heartbeat
	return checked.check()
}

// durations returns the times from the record's last sign of life to its deadlines. known reports whether they are
// plausible.
func durations(r *metadata.Record) (alert, unlock time.Duration, known bool) {
	last := lastAlive(r)
	alert = r.AlertAt.Sub(last)
	unlock = r.AutoUnlockAt.Sub(last)
	if alert <= 0 {
		alert = r.AlertAt.Sub(r.LockedAt)
	}
	known = !last.IsZero() && !r.AlertAt.IsZero() && !r.AutoUnlockAt.IsZero() && alert > 0 && alert <= maxDuration &&
		unlock >= minAutoUnlockAfter && unlock <= maxDuration
	return alert, unlock, known
}

// lastAlive returns when the holder last wrote its deadlines, by its clock; zero if the record does not say.
func lastAlive(r *metadata.Record) time.Time {
	if r.Alive != nil && !r.Alive.At.IsZero() {
		return protocol.Later(r.Alive.At, r.LockedAt)
	}
	return r.LockedAt
}

// loadExtension takes from the record what extensions need: the progress, which a heartbeat repeats, the more time that
// was given, and if the record has no alert time, one that counts from now.
func (l *Lock) loadExtension(record *metadata.FullRecord) {
	l.extension.lastAliveRevision = fieldOf(record, lockrecord.FieldAlive).ModRevision
	if record.Alive != nil {
		l.extension.progress = record.Alive.Progress
	}
	if record.MoreTime != nil { // its deadlines are those that are adopted
		revision := fieldOf(record, lockrecord.FieldExtended).ModRevision
		l.inbox = &inbox{moreTime: record.MoreTime, moreTimeRevision: revision}
	}
	if l.extension.alertTarget.IsZero() {
		l.extension.alertTarget = l.began.wall.Add(l.set.alertAfter)
	}
}

// startAdopted starts the handle of an adopted hold. It first extends a hold whose time is up.
func (l *Lock) startAdopted(ctx context.Context, record *metadata.FullRecord) error {
	l.prepare()
	l.deadline.until = l.began.monotonic
	l.deadline.counted = l.c.moment()
	l.deadline.recorded = record.AutoUnlockAt
	if !record.AutoUnlockAt.IsZero() {
		l.deadline.until = l.began.monotonic.Add(record.AutoUnlockAt.Sub(l.began.wall) - l.set.safetyMargin)
		if time.Until(l.deadline.until) <= 0 && l.set.autoUnlockAfter > 0 {
			if _, err := l.extendOnce(ctx, l.span(), true, ""); err != nil {
				l.endWith(err)
				return err
			}
		}
	}
	if err := l.begin(); err != nil {
		return err
	}
	l.applyRecord(record)
	return nil
}

// Detach ends the handle and leaves the hold to the process that adopts it, by name and [Lock.UUID], or to the
// auto-unlock. The context ends with [ErrDetached], a heartbeat stops, and Unlock does nothing from then on. All
// handles of the hold in this process that [Reentrant] made are detached with it.
//
// It waits until the record says that the end of this process proves nothing about the hold, at most for the request
// timeout, and then keeps trying in the background; see [Detached].
func (l *Lock) Detach() {
	switch {
	case l.hasNoHold():
		return
	case l.forGroup:
		for _, one := range l.group.locks {
			one.Detach()
		}
		return
	}
	hold := l.root()
	if !hold.endWith(ErrDetached) {
		return
	}
	if hold.origin.cancel != nil {
		hold.putTombstoneLater()
	}
	if !hold.origin.detached {
		hold.recordDetached()
	}
}

// putTombstoneLater keeps late requests of the acquisition from taking the lock again after an adopter released it.
func (l *Lock) putTombstoneLater() {
	c := l.c
	c.cleanups.later(l.held.Lock, l.held.UUID, protocol.CancelledTTL, func(ctx context.Context) error {
		_, err := c.tombstones.send(ctx, func(lease clientv3.LeaseID) locktxn.Txn {
			return locktxn.PutTombstone(c.layout, l.held.Lock, l.held.UUID, lease)
		})
		return err
	})
}

// recordDetached records that the hold outlives this process, unless the hold is lost.
func (l *Lock) recordDetached() {
	c := l.c
	record := func(ctx context.Context) error {
		err := c.detach(ctx, l.held)
		if _, isLost := errors.AsType[*LostError](err); isLost {
			return nil
		}
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), c.opts.RequestTimeout)
	defer cancel()
	if record(ctx) != nil {
		c.cleanups.later(l.held.Lock, l.held.UUID, protocol.StatementTTL, record)
	}
}

// AttributeReserved is the attribute that marks the record of a reservation; its value is true. The pid in the record
// is that of a program that may have ended.
const AttributeReserved = "reserved"

// Reservation is a hold without a process. To release or extend it, use [Client.Adopt] with its name and UUID.
type Reservation struct {
	Name  string    // the name of the record, see [Lock.Name]
	UUID  string    // of the hold
	Token int64     // see [Lock.Token]
	Until time.Time // when it is auto-unlocked, wall clock
}

// Reserve takes the lock for the duration d and leaves it held, even after this process has ended. It waits for the
// lock as [Client.Lock] does.
//
// The reason becomes the purpose of the record and must not be empty, because no process can explain the hold. Nothing
// extends it: when the time is up, an alert is raised and the lock is auto-unlocked. For an earlier alert, add
// [AlertAfter]. [Heartbeat] and [Reentrant] are refused; [Exclusive] reserves a whole semaphore.
func (c *Client) Reserve(ctx context.Context, name, reason string, d time.Duration,
	opts ...Option) (Reservation, error) {
	return reserve(reason, d, opts, func(opts []Option) (*Lock, error) { return c.Lock(ctx, name, opts...) })
}

// TryReserve is [Client.Reserve] without waiting: if the lock is held, the error is a [*HeldError].
func (c *Client) TryReserve(ctx context.Context, name, reason string, d time.Duration,
	opts ...Option) (Reservation, error) {
	return reserve(reason, d, opts, func(opts []Option) (*Lock, error) { return c.TryLock(ctx, name, opts...) })
}

func reserve(reason string, d time.Duration, opts []Option, take func([]Option) (*Lock, error)) (Reservation, error) {
	// The client's defaults for running holders do not apply here.
	standard := func(s *settings) {
		s.alertAfter = d
		s.maximumHold = 0
		s.reentrant = false
	}
	lasting := func(s *settings) { s.autoUnlockAfter = s.checkPositive("the duration of the reservation", d) }
	all := append([]Option{standard}, opts...)
	l, err := take(append(all, Purpose(reason), lasting, Attribute(AttributeReserved, true), Detached(),
		checkReservation))
	if err != nil {
		return Reservation{}, err
	}
	defer l.Detach()
	return Reservation{Name: l.Name(), UUID: l.UUID(), Token: l.Token(), Until: l.began.wall.Add(d)}, nil
}

func checkReservation(s *settings) {
	switch {
	case s.holder.Purpose == "":
		s.refuse("a reservation needs a reason: no process can explain what the lock is held for")
	case s.maximumHold > 0:
		s.refuse("a reservation has no heartbeat: nothing runs that could extend it")
	case s.reentrant:
		s.refuse("a reservation cannot be Reentrant: it is a hold of its own")
	}
}
