package mutex

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/clustermutex/unlocker/internal/locktxn"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// overdueCheck finds out whether anything removes a hold whose deadline has passed.
type overdueCheck struct {
	due        time.Time // the deadline for which it asked
	asked      time.Time
	noUnlocker bool
}

// askAgainAfter is the least time between two requests about the same deadline.
const askAgainAfter = time.Minute

// nothingRemoves reports whether an auto-unlock was due and no unlocker is running. It is false if etcd does not say.
func (o *overdueCheck) nothingRemoves(ctx context.Context, c *Client, due time.Time) bool {
	now := c.wall()
	if due.IsZero() || due.After(now) {
		return false
	}
	if !due.Equal(o.due) || now.Sub(o.asked) > askAgainAfter {
		ctx, cancel := context.WithTimeout(ctx, noteTimeout)
		defer cancel()
		r, err := c.retry.Send(ctx, locktxn.ReadUnlockers(c.layout))
		*o = overdueCheck{due: due, asked: now, noUnlocker: err == nil && !slices.ContainsFunc(r.Keys(0).Kvs, hasLease)}
	}
	return o.noUnlocker
}

// hasLease reports whether a key is leased: a presence that is not says nothing.
func hasLease(kv *mvccpb.KeyValue) bool { return kv.Lease != 0 }

// firstUnlock returns the earliest time of auto-unlock of these holds and more; zero if none is known.
func firstUnlock(holds []metadata.FullRecord, more ...metadata.FullRecord) (first time.Time) {
	for _, r := range slices.Concat(holds, more) {
		first = protocol.Earlier(first, r.AutoUnlockAt)
	}
	return first
}

// warnOverdue logs, once, that nothing removes an overdue hold for which this acquisition waits.
func (a *acquisition) warnOverdue(ctx context.Context) {
	warned := a.overdue.noUnlocker
	if a.overdue.nothingRemoves(ctx, a.c, firstUnlock(a.holders.all())) && !warned {
		a.c.log(slog.LevelWarn, "no unlocker is running, so nothing removes an overdue lock",
			slog.String("lock", a.lock), slog.String("owner", plain(a.holder.Owner)))
	}
}
