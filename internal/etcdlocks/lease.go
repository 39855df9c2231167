package etcdlocks

import (
	"context"
	"slices"
	"time"

	"github.com/clustermutex/unlocker/pkg/metadata"
)

// Reading of leases costs etcd a request each, so it is bounded: with more holders, each is read less often.
const (
	minEvery = time.Second
	maxEvery = 10 * time.Second
	rarely   = time.Minute // without the right to, or with many keys
	manyKeys = 1000
	maxRound = 100         // leases read in a second
	maxOnce  = 500         // by a command that looks once
	slack    = time.Second // etcd counts whole seconds, and ends leases a little late
)

// lease is what is known of the lease of a holder.
type lease struct {
	id      int64
	ttl     time.Duration
	expires time.Time // unless it is kept alive; zero = unknown
	read    time.Time
	keys    int
	why     string // it could not be read
}

// dueAt is when the lease is to be read again: often enough to tell a release from an end.
func (l *lease) dueAt() time.Time {
	if l.ttl == 0 && l.why != "" || l.keys > manyKeys {
		return l.read.Add(rarely)
	}
	return l.read.Add(min(maxEvery, max(minEvery, l.ttl/4)))
}

// howEnded returns how a hold ended whose key is gone at a time, as far as its lease was read recently: before the end
// of the lease it was released.
func (l *lease) howEnded(at time.Time) string {
	switch {
	case l == nil || l.expires.IsZero():
		return ""
	case at.Before(l.expires.Add(-slack)):
		return metadata.EndingReleased
	case at.Sub(l.read) <= max(l.ttl/2, 2*slack):
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
		case <-time.After(minEvery):
		}
	}
}

// readDue reads leases that are due, those that were read longest ago first.
func (w *Watcher) readDue(ctx context.Context, limit int) {
	due := w.due(time.Now())
	for _, l := range due[:min(len(due), limit)] {
		read := &lease{id: l.id, ttl: l.ttl, expires: l.expires}
		found, err := w.source.Lease(ctx, l.id)
		read.read = time.Now()
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			read.why = w.source.Explain(err)
		default:
			read.ttl = found.TTL
			read.expires = read.read.Add(max(0, found.Left))
			read.keys = found.Keys
		}
		w.mu.Lock()
		w.leases[l.id] = read
		w.mu.Unlock()
	}
	if len(due) > 0 {
		w.mu.Lock()
		w.change()
		w.mu.Unlock()
	}
}

// due returns the leases of holders that are to be read, and forgets those of others.
func (w *Watcher) due(now time.Time) []*lease {
	w.mu.Lock()
	defer w.mu.Unlock()
	current := make(map[int64]*lease, len(w.leases))
	var due []*lease
	for _, q := range w.queues {
		id := q.keys[0].lease
		if current[id] != nil {
			continue
		}
		l := w.leases[id]
		if l == nil {
			l = &lease{id: id}
		}
		current[id] = l
		if !now.Before(l.dueAt()) {
			due = append(due, l)
		}
	}
	w.leases = current
	slices.SortFunc(due, byAge)
	return due
}
