package mutex

import (
	"context"
	"errors"
	"math/rand/v2"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/etcdretry"
	"github.com/clustermutex/unlocker/internal/locktxn"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// A plain lock, permits, readers and writers are claimed by one machine: [acquisition.try] and [acquisition.queueUp].
// What differs by the kind is here, in kinds.go and in holders.go.

// claim names a lock of this kind, for what is read of it.
func (k kind) claim(lock string) locktxn.Claim {
	return locktxn.Claim{Lock: lock, Record: lock, Shares: k.shared()}
}

// next is what to claim by what is known of the holders. If they left no room when last read, it is what is right
// should nobody hold the lock any more.
//
// Readers that were refused again are spread over the vacant shares, because others claim one at the same time.
func (a *acquisition) next(refusals int) locktxn.Claim {
	k := a.set.kind
	if !k.shared() {
		return locktxn.Sole(a.lock)
	}
	if !a.holders.room(k) {
		a.holders = holders{}
	}
	skip := 0
	if refusals > 1 && k.name == metadata.HoldsShared {
		skip = rand.N(1 << min(refusals, 6))
	}
	return a.holders.claim(a.lock, k, skip)
}

// ends are the keys whose deletion tells the first in the queue that a hold or a lock delay is over.
func (a *acquisition) ends() []etcdretry.Watched {
	layout := a.c.layout
	keys := []etcdretry.Watched{etcdretry.Deleted(layout.Field(a.lock, metadata.FieldUUID))}
	if !a.set.kind.shared() {
		if a.holders.delayed() {
			keys = append(keys, etcdretry.Deleted(layout.Delay(a.lock)))
		}
		return keys
	}
	keys = append(keys, deletedIn(layout.Shares(a.lock)))
	if a.holders.delayed() {
		keys = append(keys, deletedIn(layout.DelaysAbout(a.lock)))
	}
	return keys
}

// deletedIn watches a range for deletions.
func deletedIn(from, end string) etcdretry.Watched {
	return etcdretry.Watched{Key: from,
		Options: []clientv3.OpOption{clientv3.WithRange(end), clientv3.WithFilterPut()}}
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
	h := c.holders(lock, k, r)
	if mine, ok := h.mine(uuid); ok {
		_, failed := c.retry.Send(ctx, locktxn.Withdraw(c.layout, locktxn.Sole(mine.Name), uuid))
		err = errors.Join(err, failed)
	}
	return err
}

// heldError names the holder by the last answer.
func (a *acquisition) heldError() *HeldError {
	held := &HeldError{Lock: a.lock, Holder: a.holder, At: a.c.wall(), Where: a.c.holds.where(a.holder.UUID)}
	k := a.set.kind
	if !a.holders.room(k) {
		held.Delay = a.holders.lastDelay()
	}
	if k.shared() {
		held.Kind = k.name
		held.Holders = a.holders.all()
		held.Limit = k.limit
		held.Weight = k.weight
		held.Free = a.holders.free(k.limit)
	}
	return held
}

// inTheWay returns which of the holders would have to finish for one more of this kind: all of them for a writer, the
// writer for a reader, and for permits those who were there first and have enough of them.
func (k kind) inTheWay(lock string, of []metadata.Document) (some []metadata.Document) {
	missing := max(k.weight, 1) - k.limit
	for _, d := range of {
		missing += permits(&d, k.limit)
	}
	for _, d := range of {
		whole := d.Name == lock
		switch {
		case whole, k.name == metadata.HoldsExclusive:
			some = append(some, d)
		case k.name == metadata.HoldsPermits && missing > 0:
			some = append(some, d)
			missing -= permits(&d, k.limit)
		}
	}
	return some
}

// known is what a waiter keeps of the holders, to ask whether they are still the same.
func (k kind) known(lock string, h holders) locktxn.Known {
	return locktxn.Known{Lock: lock, Token: h.writer.Token, Delay: h.delayRevision(), Shares: k.shared(),
		Revision: h.revision}
}
