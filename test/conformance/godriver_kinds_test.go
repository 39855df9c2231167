//go:build conformance

package conformance

import (
	"context"
	"errors"

	"github.com/clustermutex/unlocker/pkg/jobs"
	"github.com/clustermutex/unlocker/pkg/leader"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

// goWants are the members of requests for more than a lock with one holder.
type goWants struct {
	Limit, Weight int
	Names         []string // of several locks, all or none
	Life          float64  // of a leader
	Address       string
	Every, Offset float64 // of a job that runs once per period
	Hold          float64 // how long it runs
	Fails         bool    // its end is an error, and the period is to be given back
}

// kinds are all that a driver may have beyond a lock with one holder.
func kinds() []string { return append(goKinds(), "mixed") }

// goKinds are those of the Go client, which takes several locks of one kind only.
func goKinds() []string {
	return []string{"semaphore", "read-write", "together", "once", "back", "leader"}
}

// errFails is the end of a job that is to fail.
var errFails = errors.New("as it was asked to")

func (w goWants) options(kind string) []mutex.Option {
	switch kind {
	case metadata.HoldsPermits:
		return []mutex.Option{mutex.Semaphore(w.Limit), mutex.Weight(max(w.Weight, 1))}
	case metadata.HoldsShared:
		return []mutex.Option{mutex.Shared()}
	case metadata.HoldsExclusive:
		return []mutex.Option{mutex.Exclusive()}
	}
	return nil
}

// hold takes what a request wants. Of several locks, first is the first.
func (d *goDriver) hold(ctx context.Context, r goRequest, try bool, opts []mutex.Option) (goHold, *mutex.Lock, error) {
	switch {
	case len(r.Names) > 0:
		take := d.client.LockAll
		if try {
			take = d.client.TryLockAll
		}
		all, err := take(ctx, r.Names, opts...)
		if err != nil {
			return nil, nil, err
		}
		return all, all.All()[0], nil
	case r.Life > 0:
		l, err := leader.Campaign(ctx, d.client, r.Name, leader.Options{Life: seconds(r.Life), Address: r.Address})
		return l, l, err
	case try:
		l, err := d.client.TryLock(ctx, r.Name, opts...)
		return l, l, err
	}
	l, err := d.client.Lock(ctx, r.Name, opts...)
	return l, l, err
}

// once runs a job that lasts a while.
func (d *goDriver) once(ctx context.Context, r goRequest) (map[string]any, error) {
	token := int64(0)
	work := func(ctx context.Context) error {
		token = mutex.FromContext(ctx).Token()
		limited, cancel := context.WithTimeout(ctx, seconds(r.Hold))
		defer cancel()
		<-limited.Done()
		if lost := context.Cause(ctx); lost != nil {
			return lost
		}
		if r.Fails {
			return errFails
		}
		return nil
	}
	opts := []jobs.Option{jobs.PeriodOffset(seconds(r.Offset))}
	if r.Fails {
		opts = append(opts, jobs.PeriodBackOnError())
	}
	ran, err := jobs.OncePer(ctx, d.client, r.Name, seconds(r.Every), work, opts...)
	if errors.Is(err, errFails) {
		err = nil
	}
	if held, isHeld := errors.AsType[*mutex.HeldError](err); isHeld {
		members := map[string]any{}
		explain(members, held, true)
		return members, nil
	}
	return map[string]any{"ran": ran, "token": token}, err
}
