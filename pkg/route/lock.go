package route

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/clustermutex/unlocker/pkg/mutex"
)

// Lock is [mutex.Client.Lock] in the cluster of the lock.
func (c *Client) Lock(ctx context.Context, name string, opts ...mutex.Option) (*mutex.Lock, error) {
	return take(ctx, c, []string{name}, true, func(ctx context.Context, l *mutex.Client) (*mutex.Lock, error) {
		return l.Lock(ctx, name, opts...)
	})
}

// TryLock is [mutex.Client.TryLock] in the cluster of the lock. While the segment moves, the holder in the error may be
// one in the old cluster.
func (c *Client) TryLock(ctx context.Context, name string, opts ...mutex.Option) (*mutex.Lock, error) {
	return take(ctx, c, []string{name}, false, func(ctx context.Context, l *mutex.Client) (*mutex.Lock, error) {
		return l.TryLock(ctx, name, opts...)
	})
}

// Do is [mutex.Client.Do] in the cluster of the lock.
func (c *Client) Do(ctx context.Context, name string, fn func(context.Context) error,
	opts ...mutex.Option) (err error) {
	if fn == nil {
		return fmt.Errorf("lock %q: there is no function to run", name)
	}
	l, err := c.Lock(ctx, name, opts...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Unlock()) }()
	ctx, done := l.Under(ctx)
	defer done()
	return fn(ctx)
}

// LockAll is [mutex.Client.LockAll]. All of the locks have to be in one cluster.
func (c *Client) LockAll(ctx context.Context, names []string, opts ...mutex.Option) (*mutex.Locks, error) {
	return take(ctx, c, names, true, func(ctx context.Context, l *mutex.Client) (*mutex.Locks, error) {
		return l.LockAll(ctx, names, opts...)
	})
}

// TryLockAll is [mutex.Client.TryLockAll]. All of the locks have to be in one cluster.
func (c *Client) TryLockAll(ctx context.Context, names []string, opts ...mutex.Option) (*mutex.Locks, error) {
	return take(ctx, c, names, false, func(ctx context.Context, l *mutex.Client) (*mutex.Locks, error) {
		return l.TryLockAll(ctx, names, opts...)
	})
}

// Reserve is [mutex.Client.Reserve] in the cluster of the lock.
func (c *Client) Reserve(ctx context.Context, name, reason string, d time.Duration,
	opts ...mutex.Option) (mutex.Reservation, error) {
	return take(ctx, c, []string{name}, true, func(ctx context.Context, l *mutex.Client) (mutex.Reservation, error) {
		return l.Reserve(ctx, name, reason, d, opts...)
	})
}

// TryReserve is [mutex.Client.TryReserve] in the cluster of the lock.
func (c *Client) TryReserve(ctx context.Context, name, reason string, d time.Duration,
	opts ...mutex.Option) (mutex.Reservation, error) {
	return take(ctx, c, []string{name}, false, func(ctx context.Context, l *mutex.Client) (mutex.Reservation, error) {
		return l.TryReserve(ctx, name, reason, d, opts...)
	})
}

// Adopt is [mutex.Client.Adopt] of a hold in the cluster of the lock or, while its segment moves, in the old one.
func (c *Client) Adopt(ctx context.Context, name, uuid string, opts ...mutex.Option) (*mutex.Lock, error) {
	p, err := c.plan([]string{name})
	if err != nil {
		return nil, err
	}
	l, err := p.home.locks.Adopt(ctx, name, uuid, opts...)
	if from := p.routes[0].From; from != "" && errors.Is(err, mutex.ErrNotHeld) {
		if old, not := c.clusters[from].locks.Adopt(ctx, name, uuid, opts...); not == nil {
			return old, nil
		}
	}
	return l, err
}

// plan is what the table says of the locks that a call takes.
type plan struct {
	version *version
	names   []string
	routes  []Route // of each
	home    cluster
	moving  []string // those that a claim may hold
}

func (c *Client) plan(names []string) (*plan, error) {
	p := &plan{version: c.version(), names: names}
	if len(names) == 0 {
		return nil, errors.New("no locks are named")
	}
	for i, name := range names {
		r, err := p.version.table.Of(name)
		if err != nil {
			return nil, err
		}
		if i > 0 && r.Cluster != p.routes[0].Cluster {
			return nil, fmt.Errorf("the locks %q and %q are in different clusters, %s and %s: they cannot be taken "+
				"together", names[0], name, p.routes[0].Cluster, r.Cluster)
		}
		if r.Move > 0 {
			p.moving = append(p.moving, name)
		}
		p.routes = append(p.routes, r)
	}
	p.home = c.clusters[p.routes[0].Cluster]
	return p, nil
}

// same reports whether another table says the same of the locks.
func (p *plan) same(other Table) bool {
	for i, name := range p.names {
		if r, err := other.Of(name); err != nil || r != p.routes[i] {
			return false
		}
	}
	return true
}

// errRerouted says that a wait is over because the table sends the lock elsewhere now.
var errRerouted = errors.New("the route has changed")

// take takes locks in their cluster, after the move has them in the old one, again and again while tables or claims
// change.
func take[T any](ctx context.Context, c *Client, names []string, wait bool,
	f func(context.Context, *mutex.Client) (T, error)) (T, error) {
	var none T
	for {
		p, err := c.plan(names)
		if err != nil {
			return none, err
		}
		if !wait {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, p.home.locks.Options().RequestTimeout)
			defer cancel()
		}
		if err = c.claimAll(ctx, p, wait); err == nil {
			var taken T
			taken, err = attempt(ctx, c, p, site{p.home, p.moving}, wait, func(ctx context.Context) (T, error) {
				return f(ctx, p.home.locks)
			})
			if err == nil {
				return taken, nil
			}
		}
		if err := c.resolve(ctx, p, wait, err); err != nil {
			return none, err
		}
	}
}

// claimAll makes sure that moves hold the locks in the clusters from which they move.
func (c *Client) claimAll(ctx context.Context, p *plan, wait bool) error {
	for i, name := range p.names {
		if p.routes[i].From == "" {
			continue
		}
		if err := c.claim(ctx, p, name, p.routes[i], wait); err != nil {
			return err
		}
	}
	return nil
}

// site is where locks are waited for, and those of them that a claim may hold.
type site struct {
	cluster
	claimable []string
}

// attempt calls f, which takes locks at a site. A wait ends early if its route changes, or if a claim is in the way.
func attempt[T any](ctx context.Context, c *Client, p *plan, at site, wait bool,
	f func(context.Context) (T, error)) (T, error) {
	waiting := ctx
	if wait {
		var stop context.CancelCauseFunc
		waiting, stop = context.WithCancelCause(ctx)
		var attending sync.WaitGroup
		defer attending.Wait()
		defer stop(nil)
		attending.Go(func() { c.attend(waiting, p, at, stop) })
	}
	taken, err := f(waiting)
	var held *mutex.HeldError
	var inTheWay *claimed
	why := context.Cause(waiting)
	switch {
	case err == nil || ctx.Err() != nil:
		return taken, err
	case errors.Is(why, errRerouted), errors.As(why, &inTheWay):
		return taken, why
	case errors.As(err, &held):
		if claim := ClaimOf(&held.Holder.Record); claim != nil {
			return taken, &claimed{*claim}
		}
	}
	return taken, err
}

// resolve returns nil if it makes sense to try again, after what it did about err.
func (c *Client) resolve(ctx context.Context, p *plan, wait bool, err error) error {
	var by *claimed
	switch {
	case errors.Is(err, errRerouted):
		return nil
	case !errors.As(err, &by):
		return err
	}
	i := slices.Index(p.names, by.Lock)
	if i < 0 {
		return err
	}
	if r := p.routes[i]; by.Move < r.Move {
		_, err := Forget(ctx, p.home.locks, by.Lock, r.Move-1)
		return err
	}
	return c.newer(ctx, p, wait, by)
}

// newer waits for the table to say of the locks what a claim says that this client does not know.
func (c *Client) newer(ctx context.Context, p *plan, wait bool, by *claimed) error {
	_ = c.Reload(ctx) // what it cannot read, the next reading may
	for {
		v := c.version()
		if !p.same(v.table) {
			return nil
		}
		moved := &MovedError{Lock: by.Lock, Cluster: by.To, Move: by.Move}
		if !wait {
			return moved
		}
		select {
		case <-ctx.Done():
			moved.Err = context.Cause(ctx)
			return moved
		case <-c.closed:
			moved.Err = ErrClosed
			return moved
		case <-v.changed:
		}
	}
}
