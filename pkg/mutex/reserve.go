package mutex

import (
	"context"
	"errors"
	"time"
)

// AttributeReserved is the attribute of the record of a reserved lock; its value is true. No process holds such a lock,
// and the pid in the record is that of a program that may have ended.
const AttributeReserved = "reserved"

// Reservation is a hold that no process keeps. To give it back or extend it, use [Client.Adopt] with its name and UUID.
type Reservation struct {
	Lock  string    // the name of the record, see [Lock.Name]
	UUID  string    // of the hold
	Token int64     // see [Lock.Token]
	Until time.Time // when it is auto-unlocked, wall clock
}

// Reserve takes the lock for the duration d and leaves it held, even after this process has ended: for maintenance, or
// to stop programs during an investigation. It waits for the lock as [Client.Lock] does.
//
// The reason becomes the purpose of the record and must not be empty, because no process can explain the hold. Nothing
// extends it: when the time is up, an alert is raised and the lock is auto-unlocked. For an earlier alert, add
// [AlertAfter].
//
// Locks of all kinds can be reserved, such as a whole semaphore with [Exclusive]. [Heartbeat] and [Reentrant] are
// refused.
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
	all := append([]Option{standard}, opts...)
	l, err := take(append(all, Purpose(reason), AutoUnlockAfter(d), Attribute(AttributeReserved, true), Detached(),
		unattended))
	if err != nil {
		return Reservation{}, err
	}
	defer l.Detach()
	return Reservation{Lock: l.Name(), UUID: l.UUID(), Token: l.Token(), Until: l.began.wall.Add(d)}, nil
}

// unattended refuses what a hold without a process cannot have.
func unattended(s *settings) {
	switch {
	case s.holder.Purpose == "":
		s.problems = append(s.problems,
			errors.New("a reservation needs a reason: no process can explain what the lock is held for"))
	case s.maximumHold > 0:
		s.problems = append(s.problems, errors.New("a reservation has no heartbeat: nothing runs that could extend it"))
	case s.reentrant:
		s.problems = append(s.problems, errors.New("a reservation cannot be Reentrant: it is a hold of its own"))
	}
}
