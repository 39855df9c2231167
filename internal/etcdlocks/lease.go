package etcdlocks

import (
	"context"
	"time"

	"github.com/clustermutex/unlocker/internal/etcdconn"
	"github.com/clustermutex/unlocker/internal/locks"
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

// dueAt returns when a lease is to be read again: often enough to tell a release from an end.
func dueAt(l *locks.Lease) time.Time {
	if l.Why != "" || l.Keys > manyKeys {
		return l.ReadAt.Add(rarely)
	}
	return l.ReadAt.Add(min(10*time.Second, max(time.Second, l.TTL/4)))
}

// howEnded returns how a hold ended whose key is gone at a time: before the end of its lease, it was released. If the
// lease was not read lately, it may have been kept alive since, and the answer is empty.
func howEnded(l *locks.Lease, at time.Time) string {
	switch {
	case l.Expires.IsZero():
		return ""
	case at.Before(l.Expires.Add(-slack)):
		return metadata.EndingReleased
	case at.Sub(l.ReadAt) <= max(l.TTL/2, 2*slack):
		return metadata.EndingLeaseEnded
	}
	return ""
}

func (v *View) readLeases(ctx context.Context) {
	for {
		v.readDue(ctx, maxRound)
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Second):
		}
	}
}

// readDue reads the leases of holders that are due, at most so many, in any order, and forgets all others.
func (v *View) readDue(ctx context.Context, limit int) {
	now := time.Now()
	var due []int64
	known := map[int64]locks.Lease{}
	v.mu.Lock()
	for _, q := range v.queues {
		l := v.leases[q.holder.lease]
		l.ID = q.holder.lease
		if _, listed := known[l.ID]; !listed && !now.Before(dueAt(&l)) {
			due = append(due, l.ID)
		}
		known[l.ID] = l
	}
	v.leases = known
	v.mu.Unlock()
	for _, id := range due[:min(len(due), limit)] {
		read := readLease(ctx, v.source, id)
		v.mu.Lock()
		v.leases[id] = read
		v.locks = nil
		v.mu.Unlock()
	}
}

func readLease(ctx context.Context, s Source, id int64) locks.Lease {
	found, err := s.ReadLease(ctx, id)
	l := locks.Lease{ID: id, ReadAt: time.Now(), TTL: found.TTL, Keys: found.Keys}
	if err != nil {
		l.Why = etcdconn.Explain(err)
		return l
	}
	l.Expires = l.ReadAt.Add(max(0, found.Left))
	return l
}
