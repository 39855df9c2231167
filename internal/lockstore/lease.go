package lockstore

import (
	"context"
	"fmt"
	"math"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/locktxn"
)

// maxKeysPerLease is how many keys share a lease at most. A lease per key would cost etcd as much as the key. But with
// authentication on, every put with a lease makes etcd check the permission for all keys of that lease, while
// everything else waits: with one lease for all keys, removing 10,000 locks took a minute.
const maxKeysPerLease = 64

// leasePool gives leases to keys: those written at about the same time share one. Later keys get the next lease, and
// the first expires with its keys. No lease is kept alive: a key that is written again moves to the newer lease.
type leasePool struct {
	etcd      clientv3.Lease
	ttl       time.Duration
	acceptFor time.Duration // how long a lease accepts new keys

	mu       sync.Mutex
	id       clientv3.LeaseID
	granted  time.Time
	keysLeft int // how many more keys the current lease takes
}

func newLeasePool(etcd clientv3.Lease, ttl, acceptFor time.Duration) *leasePool {
	return &leasePool{etcd: etcd, ttl: ttl, acceptFor: acceptFor}
}

// commitWithLease calls commit with a lease for n keys. If the lease was revoked meanwhile, it calls commit once more,
// with another one.
func (l *leasePool) commitWithLease(ctx context.Context, n int,
	commit func(clientv3.LeaseID) (*clientv3.TxnResponse, error)) (*clientv3.TxnResponse, error) {
	for try := 0; ; try++ {
		lease, err := l.current(ctx, n)
		if err != nil {
			return nil, err
		}
		resp, err := commit(lease)
		if !locktxn.IsLeaseGone(err) || try > 0 {
			return resp, err
		}
		l.discard(lease)
	}
}

// current returns a lease for n keys written now. A caller that waits for a new lease does not block others, which may
// get theirs from another member.
func (l *leasePool) current(ctx context.Context, n int) (clientv3.LeaseID, error) {
	if id := l.reserve(n); id != clientv3.NoLease {
		return id, nil
	}
	id, err := grantLease(ctx, l.etcd, l.ttl)
	if err != nil {
		return clientv3.NoLease, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.id = id
	l.granted = time.Now()
	l.keysLeft = maxKeysPerLease - n
	return id, nil
}

// reserve reserves room for n keys in the current lease, or returns clientv3.NoLease.
func (l *leasePool) reserve(n int) clientv3.LeaseID {
	l.mu.Lock()
	defer l.mu.Unlock()
	if time.Since(l.granted) >= l.acceptFor || l.keysLeft < n {
		return clientv3.NoLease
	}
	l.keysLeft -= n
	return l.id
}

// grantLease asks etcd for a lease, of whole seconds. Its error is an errNotSent.
func grantLease(ctx context.Context, etcd clientv3.Lease, ttl time.Duration) (clientv3.LeaseID, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	resp, err := etcd.Grant(ctx, int64(math.Ceil(ttl.Seconds())))
	if err != nil {
		return clientv3.NoLease, fmt.Errorf("%w: %w", errNotSent, err)
	}
	return resp.ID, nil
}

// discard makes current grant a new lease, because id was revoked or etcd was restored from an older state.
func (l *leasePool) discard(id clientv3.LeaseID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.id == id {
		l.id = clientv3.NoLease
	}
}
