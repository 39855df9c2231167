package lockstore

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/protocol"
)

// WatchFor is Watch that ends after a silence of this length.
func (s *Store) WatchFor(ctx context.Context, patience time.Duration, after int64,
	each func(revision int64, events []protocol.Event)) error {
	return s.watch(ctx, s.layout.Prefix(), after, patience, each)
}

// Leases exports shared leases for tests.
type Leases struct{ l *leasePool }

// NewLeases returns leases that last ttl, each of which takes new keys for as long as every.
func NewLeases(etcd clientv3.Lease, ttl, every time.Duration) Leases {
	return Leases{newLeasePool(etcd, ttl, every)}
}

// Current returns a lease for n keys.
func (l Leases) Current(n int) (clientv3.LeaseID, error) { return l.l.current(context.Background(), n) }

// Prepare grants a lease ahead if that is useful.
func (l Leases) Prepare() { l.l.prepare(context.Background()) }

// Discard forgets a lease that is gone.
func (l Leases) Discard(id clientv3.LeaseID) { l.l.discard(id) }
