package lockstore

import (
	"context"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/locktxn"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// A lock delay ends with its lease, which is granted before the removal is sent. So that no delay ends early, the lease
// is a second longer, and it is renewed once if it was too old when the removal was committed.
const (
	delaySlack   = time.Second
	maxDelayWait = delaySlack / 2 // from the grant of the lease
)

// grantDelays sets a lease for each removal that a delay follows: one for all of the same length. Call renew once
// they have been committed.
func (s *Store) grantDelays(ctx context.Context,
	removals ...removal) (renew func(context.Context), err error) {
	began := time.Now()
	leases := map[time.Duration]clientv3.LeaseID{}
	for _, r := range removals {
		if !r.HasDelay() {
			continue
		}
		ttl := r.Delay + delaySlack
		if leases[ttl] == clientv3.NoLease {
			if leases[ttl], err = grantLease(ctx, s.etcd, ttl); err != nil {
				return nil, err
			}
		}
		r.DelayLease = leases[ttl]
	}
	return func(ctx context.Context) {
		if len(leases) == 0 || time.Since(began) <= maxDelayWait {
			return
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
		defer cancel()
		for _, id := range leases {
			if _, err := s.etcd.KeepAliveOnce(ctx, id); err != nil {
				s.log.Warn().Err(err).Dur("took", time.Since(began)).
					Msg("etcd was slow: lock delays may end as much earlier as the removal took")
				return
			}
		}
	}, nil
}

func (s *Store) delaysOf(lock string, resp *clientv3.GetResponse) []metadata.LockDelay {
	var delays []metadata.LockDelay
	for _, kv := range resp.Kvs {
		key := s.layout.Parse(string(kv.Key))
		if base, _, ok := metadata.ParseShare(key.Lock); key.Kind == protocol.KindDelay &&
			(key.Lock == lock || ok && base == lock) {
			delays = append(delays, protocol.DecodeDelay(key.Lock, locktxn.KV(kv)))
		}
	}
	return delays
}

// endDelay ends the lock delay that an operator saw, unless it has been replaced.
func (s *Store) endDelay(ctx context.Context, d *metadata.LockDelay, a protocol.Action) error {
	if err := protocol.CheckReason(a.Reason); err != nil {
		return &protocol.RefusedError{Reason: err.Error()}
	}
	on := target{clientv3.OpGet(s.layout.Delay(d.Name)), func(now *clientv3.GetResponse) (bool, error) {
		isSeen := func(kv *mvccpb.KeyValue) bool { return kv.ModRevision == d.Revision }
		return slices.ContainsFunc(now.Kvs, isSeen), metadata.ErrChanged
	}}
	err := s.performAudited(ctx, a, on, func(ctx context.Context) (*clientv3.TxnResponse, error) {
		return s.commitAudited(ctx, a, func(audit clientv3.Op) locktxn.Txn {
			return locktxn.EndDelay(s.layout, d.Name, d.Revision, audit)
		})
	})
	if !locktxn.IsNoSpace(err) {
		return err
	}
	s.log.Warn().Str("lock", d.Name).Str("uuid", d.UUID).Str("actor", a.Actor).Str("reason", a.Reason).
		Msg("etcd is out of space: a lock delay is ended without audit")
	_, err = locktxn.EndDelay(s.layout, d.Name, d.Revision).Commit(ctx, s.etcd) // if it fails, the first one did it
	return err
}
