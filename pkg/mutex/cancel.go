package mutex

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/etcdretry"
	"github.com/clustermutex/unlocker/internal/locktxn"
	"github.com/clustermutex/unlocker/internal/protocol"
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
	for n, indeterminate := 0, false; ; n++ {
		lease, err := t.grant(ctx)
		if err == nil {
			r, err = t.retry.Send(ctx, txn(lease))
			indeterminate = indeterminate || r.Indeterminate
			r.Indeterminate = indeterminate
			if !locktxn.LeaseGone(err) {
				return r, err
			}
			t.forget(lease)
		}
		if o := etcdretry.Judge(err); o == etcdretry.Full || o == etcdretry.Refused && !locktxn.LeaseGone(err) {
			return etcdretry.Answer{Indeterminate: indeterminate}, err
		}
		if !etcdretry.Pause(ctx, etcdretry.Delay(n)) {
			err = fmt.Errorf("etcd did not answer (%w): %w", err, ended(ctx))
			return etcdretry.Answer{Indeterminate: indeterminate}, err
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

// cancelLater cancels an attempt in the background.
func (c *Client) cancelLater(lock, uuid string, cancel func(context.Context) error) {
	c.cleanups.later(cleanup{lock: lock, uuid: uuid, until: time.Now().Add(protocol.CancelledTTL), do: cancel})
}

// cancelClaim ends the attempt with this uuid, whose outcome is unknown: afterwards nothing is held by it and nothing
// will be, and it stands in no queue. Which share it may have is learned only by the tombstone, and withdrawn after it.
func (c *Client) cancelClaim(ctx context.Context, lock string, k kind, uuid string) error {
	claim := k.claim(lock)
	r, err := c.cancelAttempt(ctx, func(lease clientv3.LeaseID) locktxn.Txn {
		return locktxn.Cancel(c.layout, claim, uuid, lease)
	}, locktxn.Withdraw(c.layout, claim, uuid))
	if !claim.Shares || r.TxnResponse == nil {
		return err
	}
	h := readHolders(c.layout, lock, k, r)
	if mine, ok := h.mine(uuid); ok {
		_, failed := c.retry.Send(ctx, locktxn.Withdraw(c.layout, locktxn.Sole(mine.Name), uuid))
		err = errors.Join(err, failed)
	}
	return err
}

// cancelAttempt commits a transaction that cancels an attempt, with the lease of its tombstone. Where etcd has no space
// for a tombstone, what the attempt acquired with the last space is at least withdrawn.
func (c *Client) cancelAttempt(ctx context.Context, cancel func(clientv3.LeaseID) locktxn.Txn,
	withdraw locktxn.Txn) (r etcdretry.Answer, err error) {
	lease, err := c.tombstones.grant(ctx)
	if err == nil {
		r, err = c.retry.Send(ctx, cancel(lease))
	}
	switch {
	case locktxn.LeaseGone(err):
		c.tombstones.forget(lease)
	case locktxn.NoSpace(err):
		r, _ = c.retry.Send(ctx, withdraw)
	}
	return r, err
}

// leaveLater is leaveAlone in the background, of an attempt whose lease is revoked after that.
func (c *Client) leaveLater(lock, uuid string) {
	c.cleanups.later(cleanup{lock: lock, uuid: uuid, until: time.Now().Add(protocol.TicketTTL),
		do: func(ctx context.Context) error {
			_, err := c.waiters.leaveAlone(ctx, lock, uuid)
			return err
		}})
}

// forbidLater keeps late sendings of an acquisition from taking the lock once more after an adopter gave its hold back.
func (c *Client) forbidLater(lock, uuid string) {
	c.cleanups.later(cleanup{lock: lock, uuid: uuid, until: time.Now().Add(protocol.CancelledTTL),
		do: func(ctx context.Context) error {
			lease, err := c.tombstones.grant(ctx)
			if err == nil {
				_, err = c.retry.Send(ctx, locktxn.Forbid(c.layout, lock, uuid, lease))
			}
			return err
		}})
}
