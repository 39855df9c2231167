package lockstore

import (
	"context"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// leaseKeys is how many keys share a lease. A lease of its own for each key would be as much work for etcd as the key.
// But with users and roles turned on, etcd checks the right to every key of a lease at every put with that lease, and
// nothing else goes on meanwhile: with one lease for all, removing 10,000 locks took a minute.
const leaseKeys = 64

// lease is shared by the keys written within a while; then the next lease takes over, and the first ends by itself with
// its keys. There is nothing to keep alive: a key that is written again moves to the newer lease.
type lease struct {
	etcd  clientv3.Lease
	ttl   time.Duration
	every time.Duration // how long a lease takes new keys

	mu      sync.Mutex
	id      clientv3.LeaseID
	granted time.Time
	room    int // for more keys
}

func newLease(etcd clientv3.Lease, ttl, every time.Duration) *lease {
	return &lease{etcd: etcd, ttl: ttl, every: every}
}

// current returns a lease for n keys written now. Who needs a new one does not keep others from getting one, too, at
// another member.
func (l *lease) current(ctx context.Context, n int) (clientv3.LeaseID, error) {
	if id := l.take(n); id != clientv3.NoLease {
		return id, nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	resp, err := l.etcd.Grant(ctx, int64(l.ttl.Seconds()))
	if err != nil {
		return clientv3.NoLease, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.id = resp.ID
	l.granted = time.Now()
	l.room = leaseKeys - n
	return l.id, nil
}

// take takes room for n keys in the lease that there is.
func (l *lease) take(n int) clientv3.LeaseID {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.id == clientv3.NoLease || time.Since(l.granted) >= l.every || l.room < n {
		return clientv3.NoLease
	}
	l.room -= n
	return l.id
}

// gone makes current grant a new lease: somebody revoked this one, or etcd was restored from an older state.
func (l *lease) gone(id clientv3.LeaseID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.id == id {
		l.id = clientv3.NoLease
	}
}
