package lockstore

import (
	"context"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
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

func newLeasePool(etcd clientv3.Lease, ttl, every time.Duration) *leasePool {
	return &leasePool{etcd: etcd, ttl: ttl, acceptFor: every}
}

// current returns a lease for n keys written now. A caller that waits for a new lease does not block others, which may
// get theirs from another member.
func (l *leasePool) current(ctx context.Context, n int) (clientv3.LeaseID, error) {
	if id := l.reserve(n); id != clientv3.NoLease {
		return id, nil
	}
	return l.grant(ctx, n)
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

// grant gets a new lease and uses it, for n keys at first.
func (l *leasePool) grant(ctx context.Context, n int) (clientv3.LeaseID, error) {
	id, err := l.request(ctx)
	if err != nil {
		return clientv3.NoLease, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.setCurrent(spare{id, time.Now()}, n)
	return id, nil
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
