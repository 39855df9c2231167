package mutex

import (
	"context"
	"errors"
	"time"
)

// AttributeReserved is the attribute, true, of the record of a reserved lock: no process holds it, and its pid is that
// of a program that may have ended.
const AttributeReserved = "reserved"

// Reservation is a hold that no process keeps. To give it back or extend it, use [Client.Adopt] with its name and UUID.
type Reservation struct {
	Lock  string    // the name of the record, see [Lock.Name]
	UUID  string    // of the hold
	Token int64     // see [Lock.Token]
	Until time.Time // when it is auto-unlocked, wall clock
}

// Reserve takes the lock for the duration d and leaves it held when it returns, and when this process ends: for
// maintenance, or to keep programs from working while somebody looks. It waits for the lock as [Client.Lock] does.
//
// The reason becomes the purpose of the record, and must not be empty: there is no program to ask. Nothing extends the
// hold: when the time is up an alert is raised and the lock is auto-unlocked. For an earlier alert, add [AlertAfter].
//
// All kinds of locks can be reserved, such as a whole semaphore with [Exclusive]. [Heartbeat] and [Reentrant] are
// errors.
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
	// What the client's defaults say of holders that run does not count here.
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
	case s.purpose == "":
		s.problems = append(s.problems,
			errors.New("a reservation needs a reason: nobody can ask a program what it is held for"))
	case s.maximumHold > 0:
		s.problems = append(s.problems, errors.New("a reservation has no heartbeat: nothing runs that could extend it"))
	case s.reentrant:
		s.problems = append(s.problems, errors.New("a reservation is a hold of its own, it cannot be Reentrant"))
	}
}
