package mutex

import (
	"context"
	"errors"
	"time"
)

// AttributeReserved is the attribute, true, of the record of a lock that was reserved: no process holds it, and its pid
// is that of a program that may have ended.
const AttributeReserved = "reserved"

// Reservation is a hold that no process keeps. Whoever knows its name and UUID gives it back, or puts its end off, with
// [Client.Adopt].
type Reservation struct {
	Lock  string    // the name of the record, see [Lock.Name]
	UUID  string    // of the hold
	Token int64     // see [Lock.Token]
	Until time.Time // when it is auto-unlocked, wall clock
}

// Reserve takes the lock for so long and leaves it held when it returns, and when this process ends: for maintenance,
// or to keep the programs that want the lock from working while people look. It waits for the lock as [Client.Lock]
// does.
//
// The reason is the purpose of the record, and must not be empty: nobody can ask a program what the lock is held for.
// Nothing runs and nothing extends: when the time is up people are alerted and the lock is auto-unlocked; to have them
// alerted before, add [AlertAfter].
//
// The kinds of locks can be reserved too, such as a whole semaphore with [Exclusive]. A [Heartbeat] and [Reentrant] can
// not go with it.
func (c *Client) Reserve(ctx context.Context, name, reason string, d time.Duration,
	opts ...Option) (Reservation, error) {
	return reserve(reason, d, opts, func(opts []Option) (*Lock, error) { return c.Lock(ctx, name, opts...) })
}

// TryReserve is Reserve that does not wait, as [Client.TryLock]: where somebody holds the lock the error is a
// [*HeldError].
func (c *Client) TryReserve(ctx context.Context, name, reason string, d time.Duration,
	opts ...Option) (Reservation, error) {
	return reserve(reason, d, opts, func(opts []Option) (*Lock, error) { return c.TryLock(ctx, name, opts...) })
}

func reserve(reason string, d time.Duration, opts []Option, take func([]Option) (*Lock, error)) (Reservation, error) {
	// What the client's defaults say of holders that run does not count here.
	standard := func(s *settings) { s.alertAfter, s.maximumHold, s.reentrant = d, 0, false }
	all := append([]Option{standard}, opts...)
	l, err := take(append(all, Purpose(reason), AutoUnlockAfter(d), Attribute(AttributeReserved, true), unattended))
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
