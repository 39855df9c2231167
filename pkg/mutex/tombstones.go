package mutex

import (
	"context"
	"fmt"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/locktxn"
)

// marks is the lease of what a client notes under the uuids of acquisitions that must not be committed any more. Many
// share one; it outlives each by life.
type marks struct {
	life  time.Duration
	mu    sync.Mutex
	lease clientv3.LeaseID
	until time.Time // it may be used for new marks until then
}

// markLease is a lease for marks. Two who ask at once may each make one.
func (c *Client) markLease(ctx context.Context, m *marks) (clientv3.LeaseID, error) {
	const shared = time.Minute
	if lease, ok := m.current(); ok {
		return lease, nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.slice(ctx))
	defer cancel()
	asked := time.Now()
	grant, err := c.etcd.Grant(ctx, int64((m.life+shared)/time.Second))
	if err != nil {
		return 0, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lease = grant.ID
	m.until = asked.Add(shared)
	return m.lease, nil
}

func (m *marks) current() (clientv3.LeaseID, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.lease, time.Now().Before(m.until)
}

// sendMarked sends a transaction that leaves a mark, until its outcome is known, it is refused or ctx ends.
func (c *Client) sendMarked(
	ctx context.Context, m *marks, txn func(clientv3.LeaseID) locktxn.Txn,
) (r answer, err error) {
	for n, doubt := 0, false; ; n++ {
		lease, err := c.markLease(ctx, m)
		if err == nil {
			r, err = c.send(ctx, txn(lease))
			doubt = doubt || r.doubt
			r.doubt = doubt
			if !locktxn.LeaseGone(err) {
				return r, err
			}
			m.forget(lease)
		}
		if o := judge(err); o == full || o == refused && !locktxn.LeaseGone(err) {
			return answer{doubt: doubt}, err
		}
		if !pause(ctx, delay(n)) {
			return answer{doubt: doubt}, fmt.Errorf("etcd did not answer (%w): %w", err, ended(ctx))
		}
	}
}

// forget has the next mark get another lease, because this one is gone.
func (m *marks) forget(lease clientv3.LeaseID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.lease == lease {
		m.until = time.Time{}
	}
}
