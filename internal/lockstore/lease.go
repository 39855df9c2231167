package lockstore

import (
	"context"
	"fmt"
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

	mu            sync.Mutex
	id            clientv3.LeaseID
	granted       time.Time
	keysLeft      int // how many more keys the current lease takes
	spares        []spare
	pendingSpares int // spares that are being granted
}

// spare is a lease that has no keys yet.
type spare struct {
	id      clientv3.LeaseID
	granted time.Time
}

// maxSpares is how many leases are granted ahead: one for each batch of removals that may be in flight.
const maxSpares = 2

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
			return nil, fmt.Errorf("%w: %w", errNotSent, err)
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
	id, err := l.request(ctx)
	if err != nil {
		return clientv3.NoLease, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.setCurrent(spare{id, time.Now()}, n)
	return id, nil
}

// prepare grants a lease ahead if the present one is full, so that the next callers need not wait. If that fails, the
// next caller gets the error.
func (l *leasePool) prepare(ctx context.Context) {
	l.mu.Lock()
	needed := l.id != clientv3.NoLease && l.keysLeft == 0 && len(l.spares)+l.pendingSpares < maxSpares
	if needed {
		l.pendingSpares++
	}
	l.mu.Unlock()
	if !needed {
		return
	}
	id, err := l.request(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pendingSpares--
	if err == nil {
		l.spares = append(l.spares, spare{id, time.Now()})
	}
}

// request asks etcd for a lease.
func (l *leasePool) request(ctx context.Context) (clientv3.LeaseID, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	resp, err := l.etcd.Grant(ctx, int64(l.ttl.Seconds()))
	if err != nil {
		return clientv3.NoLease, err
	}
	return resp.ID, nil
}

// setCurrent makes s the current lease, with n keys at first.
func (l *leasePool) setCurrent(s spare, n int) {
	l.id = s.id
	l.granted = s.granted
	l.keysLeft = maxKeysPerLease - n
}

// reserve reserves room for n keys in a lease that exists, or returns clientv3.NoLease.
func (l *leasePool) reserve(n int) clientv3.LeaseID {
	l.mu.Lock()
	defer l.mu.Unlock()
	young := func(granted time.Time) bool { return time.Since(granted) < l.acceptFor }
	if l.id != clientv3.NoLease && young(l.granted) && l.keysLeft >= n {
		l.keysLeft -= n
		return l.id
	}
	for len(l.spares) > 0 {
		s := l.spares[0]
		if l.spares = l.spares[1:]; young(s.granted) {
			l.setCurrent(s, n)
			return l.id
		}
	}
	return clientv3.NoLease
}

// discard makes current grant a new lease, because id was revoked or etcd was restored from an older state.
func (l *leasePool) discard(id clientv3.LeaseID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.id == id {
		l.id = clientv3.NoLease
		l.spares = nil // they were granted before the lost one, or soon after
	}
}
