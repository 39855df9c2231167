package mutex

import (
	"context"
	"fmt"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/etcdretry"
	"github.com/clustermutex/unlocker/internal/locktxn"
)

// tombstones are keys under the uuids of acquisitions that must not be committed any more. Many share one lease, which
// keeps each of them for at least life.
type tombstones struct {
	etcd  *clientv3.Client
	retry *etcdretry.Client
	life  time.Duration

	mu    sync.Mutex
	lease clientv3.LeaseID
	until time.Time // when the lease is too old for new tombstones
}

// grant returns a lease for tombstones. Two calls at once may each make one.
func (t *tombstones) grant(ctx context.Context) (clientv3.LeaseID, error) {
	const shared = time.Minute
	if lease, ok := t.current(); ok {
		return lease, nil
	}
	ctx, cancel := context.WithTimeout(ctx, t.retry.Attempt(ctx))
	defer cancel()
	asked := time.Now()
	grant, err := t.etcd.Grant(ctx, int64((t.life+shared)/time.Second))
	if err != nil {
		return 0, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lease = grant.ID
	t.until = asked.Add(shared)
	return t.lease, nil
}

func (t *tombstones) current() (clientv3.LeaseID, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.lease, time.Now().Before(t.until)
}

// send commits a transaction that leaves a tombstone, until its outcome is known, it is refused or ctx ends.
func (t *tombstones) send(
	ctx context.Context, txn func(clientv3.LeaseID) locktxn.Txn,
) (r etcdretry.Answer, err error) {
	for n, doubt := 0, false; ; n++ {
		lease, err := t.grant(ctx)
		if err == nil {
			r, err = t.retry.Send(ctx, txn(lease))
			doubt = doubt || r.Doubt
			r.Doubt = doubt
			if !locktxn.LeaseGone(err) {
				return r, err
			}
			t.forget(lease)
		}
		if o := etcdretry.Judge(err); o == etcdretry.Full || o == etcdretry.Refused && !locktxn.LeaseGone(err) {
			return etcdretry.Answer{Doubt: doubt}, err
		}
		if !etcdretry.Pause(ctx, etcdretry.Delay(n)) {
			return etcdretry.Answer{Doubt: doubt}, fmt.Errorf("etcd did not answer (%w): %w", err, ended(ctx))
		}
	}
}

// forget makes the next tombstone get another lease, because this one is gone.
func (t *tombstones) forget(lease clientv3.LeaseID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.lease == lease {
		t.until = time.Time{}
	}
}

// releaseLife is how long etcd remembers a release with the caller's own writes, whose client repeats it for its
// request timeout.
const releaseLife = 10 * time.Minute
