package etcdlocks

import (
	"context"
	"slices"
	"time"

	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// Reading a lease costs etcd a request, so it is bounded: with more holders, each is read less often.
const (
	maxRound = 100 // leases read in a second
	maxOnce  = 500 // by a command that looks once
	rarely   = time.Minute
	manyKeys = 1000
	slack    = time.Second // etcd counts whole seconds, and ends leases a little late
)

// lease is what is known of the lease of a holder.
type lease struct {
	protocol.Lease
	expires time.Time // unless it is kept alive; zero = unknown
	read    time.Time
	why     string // it could not be read
}

// dueAt returns when the lease is to be read again: often enough to tell a release from an end.
func (l *lease) dueAt() time.Time {
	if l == nil {
		return time.Time{}
	}
	if l.why != "" || l.Keys > manyKeys {
		return l.read.Add(rarely)
	}
	return l.read.Add(min(10*time.Second, max(time.Second, l.TTL/4)))
}

// howEnded returns how a hold ended whose key is gone at a time: before the end of its lease, it was released. If the
// lease was not read lately, it may have been kept alive since, and the answer is empty.
func (l *lease) howEnded(at time.Time) string {
	switch {
	case l == nil || l.expires.IsZero():
		return ""
	case at.Before(l.expires.Add(-slack)):
		return metadata.EndingReleased
	case at.Sub(l.read) <= max(l.TTL/2, 2*slack):
		return metadata.EndingLeaseEnded
	}
	return ""
}

// readLeases reads the leases of holders until ctx ends.
func (w *Watcher) readLeases(ctx context.Context) {
	for {
		w.readDue(ctx, maxRound)
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Second):
		}
	}
}

// readDue reads the leases of holders that are due, those that were read longest ago first, and forgets the others.
func (w *Watcher) readDue(ctx context.Context, limit int) {
	now := time.Now()
	all := w.Locks()
	known := make(map[int64]*lease, len(all))
	var due []int64
	w.mu.Lock()
	for _, l := range all {
		if _, listed := known[l.Lease]; listed {
			continue
		}
		known[l.Lease] = w.leases[l.Lease]
		if !now.Before(known[l.Lease].dueAt()) {
			due = append(due, l.Lease)
		}
	}
	w.leases = known
	w.mu.Unlock()
	slices.SortFunc(due, func(a, b int64) int { return known[a].dueAt().Compare(known[b].dueAt()) })
	for _, id := range due[:min(len(due), limit)] {
		w.readLease(ctx, id)
	}
}

func (w *Watcher) readLease(ctx context.Context, id int64) {
	found, err := w.source.ReadLease(ctx, id)
	read := &lease{Lease: found, read: time.Now()}
	read.expires = read.read.Add(max(0, found.Left))
	if err != nil {
		read.expires = time.Time{}
		read.why = w.opt.Explain(err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.leases[id] = read
	w.locks = nil
}
