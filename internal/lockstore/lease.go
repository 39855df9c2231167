package lockstore

import (
	"context"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// lease is shared by the keys written within a while; then the next lease takes over, and the first ends by itself with its
// keys. There is nothing to keep alive: a key that is written again moves to the newer lease.
type lease struct {
	etcd  clientv3.Lease
	ttl   time.Duration
	every time.Duration // how long a lease takes new keys

	mu      sync.Mutex
	id      clientv3.LeaseID
	granted time.Time
}

func newLease(etcd clientv3.Lease, ttl, every time.Duration) *lease {
	return &lease{etcd: etcd, ttl: ttl, every: every}
}

// current returns a lease for a key written now.
func (l *lease) current(ctx context.Context) (clientv3.LeaseID, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.id != clientv3.NoLease && time.Since(l.granted) < l.every {
		return l.id, nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	resp, err := l.etcd.Grant(ctx, int64(l.ttl.Seconds()))
	if err != nil {
		return clientv3.NoLease, err
	}
	l.id, l.granted = resp.ID, time.Now()
	return l.id, nil
}

// gone makes current grant a new lease: somebody revoked this one, or etcd was restored from an older state.
func (l *lease) gone(id clientv3.LeaseID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.id == id {
		l.id = clientv3.NoLease
	}
}
