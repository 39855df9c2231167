package lockstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/locktxn"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// A lock delay ends with its lease, which is granted before the removal is sent. So that no delay ends early, the lease
// is a second longer, and it is renewed once if it was too old when the removal was committed.
const (
	delaySlack     = time.Second
	delayAcceptFor = delaySlack / 2 // how long a lease accepts new delays
)

// delayLeases are the leases of lock delays: removals at about the same time share one lease per length.
type delayLeases struct {
	mu    sync.Mutex
	byTTL map[time.Duration]*leasePool
}

// pool returns the leases for delays of this length.
func (d *delayLeases) pool(etcd clientv3.Lease, delay time.Duration) *leasePool {
	ttl := delayTTL(delay)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.byTTL == nil {
		d.byTTL = map[time.Duration]*leasePool{}
	}
	if d.byTTL[ttl] == nil {
		d.byTTL[ttl] = newLeasePool(etcd, ttl, delayAcceptFor)
	}
	return d.byTTL[ttl]
}

// discardAll makes later delays get new leases.
func (d *delayLeases) discardAll() {
	d.mu.Lock()
	defer d.mu.Unlock()
	clear(d.byTTL)
}

// delayTTL returns the time to live of a delay's lease. Long ones are rounded up, so that a thousand different delays
// need few leases.
func delayTTL(d time.Duration) time.Duration {
	step := time.Second
	switch {
	case d > 10*time.Minute:
		step = time.Minute
	case d > time.Minute:
		step = 10 * time.Second
	}
	return (d + step - 1).Truncate(step) + delaySlack
}

// grantDelays sets a lease for each removal that a delay follows. Call renew once they have been committed.
func (s *Store) grantDelays(ctx context.Context,
	removals ...*locktxn.Removal) (renew func(context.Context), err error) {
	byLease := map[*leasePool][]*locktxn.Removal{}
	for _, r := range removals {
		if r.HasDelay() {
			l := s.delays.pool(s.etcd, r.Delay)
			byLease[l] = append(byLease[l], r)
		}
	}
	if len(byLease) == 0 {
		return func(context.Context) {}, nil
	}
	began := time.Now()
	ids := make([]clientv3.LeaseID, 0, len(byLease))
	for l, some := range byLease {
		id, err := l.current(ctx, len(some))
		if err != nil {
			return nil, fmt.Errorf("%w: no lease for the lock delay: %w", errNotSent, err)
		}
		for _, r := range some {
			r.DelayLease = id
		}
		ids = append(ids, id)
	}
	return func(ctx context.Context) {
		if time.Since(began) <= delaySlack-delayAcceptFor {
			return
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
		defer cancel()
		for _, id := range ids {
			if _, err := s.etcd.KeepAliveOnce(ctx, id); err != nil {
				s.log.Warn().Err(err).Dur("took", time.Since(began)).
					Msg("etcd was slow: lock delays may end as much earlier as the removal took")
				return
			}
		}
	}, nil
}

// delaysOf decodes the delays of a lock and of its shares.
func (s *Store) delaysOf(lock string, resp *clientv3.GetResponse) []metadata.LockDelay {
	var delays []metadata.LockDelay
	for _, kv := range resp.Kvs {
		key := s.layout.Parse(string(kv.Key))
		if base, _, ok := metadata.ParseShare(key.Lock); key.Kind == protocol.KindDelay &&
			(key.Lock == lock || ok && base == lock) {
			delays = append(delays, protocol.ReadDelay(key.Lock, locktxn.KV(kv)))
		}
	}
	return delays
}

// endDelay ends the lock delay that an operator saw, unless it has been replaced.
func (s *Store) endDelay(ctx context.Context, d *metadata.LockDelay, a protocol.Action) error {
	if err := protocol.CheckReason(a.Reason); err != nil {
		return &protocol.RefusedError{Why: err.Error()}
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	resp, err := s.commitAudited(ctx, a, func(audit clientv3.Op) locktxn.Txn {
		return locktxn.EndDelay(s.layout, d.Name, d.Revision, audit)
	})
	switch {
	case err == nil && resp.Succeeded:
		return nil
	case err == nil:
		return metadata.ErrChanged
	case locktxn.IsNoSpace(err):
		s.log.Warn().Str("lock", d.Name).Str("uuid", d.UUID).Str("actor", a.Actor).Str("reason", a.Reason).
			Msg("etcd is out of space: a lock delay is ended without audit")
		_, err = locktxn.EndDelay(s.layout, d.Name, d.Revision).Commit(ctx, s.etcd) // if it fails, the first one did it
		return err
	case locktxn.IsRefused(err), errors.Is(err, errNotSent):
		return err
	}
	return s.recheckDelay(ctx, d, a, err)
}

// recheckDelay reads whether a delay was ended after the answer was lost.
func (s *Store) recheckDelay(ctx context.Context, d *metadata.LockDelay, a protocol.Action, cause error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	resp, err := s.etcd.Txn(ctx).Then(clientv3.OpGet(s.layout.Audit(a.At.Time, a.ID), clientv3.WithCountOnly()),
		clientv3.OpGet(s.layout.Delay(d.Name))).Commit()
	if err != nil {
		return &unknownError{cause}
	}
	if locktxn.Keys(resp, 0).Count > 0 {
		return nil
	}
	for _, kv := range locktxn.Keys(resp, 1).Kvs {
		if kv.ModRevision == d.Revision {
			return &unknownError{cause}
		}
	}
	return metadata.ErrChanged
}
