package dashboard

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/clustermutex/unlocker/internal/dashboard/locks"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// past is what is known of holds that are over. How the unlocker and operators ended them stands in etcd; that a holder
// released its lock stands nowhere, so the dashboard remembers what it saw, as long as it lives and within bounds.
type past struct {
	mu    sync.Mutex
	seen  []metadata.Ending // by the watch, oldest first
	gaps  []gap             // oldest first
	since time.Time         // when the dashboard began to watch

	heard   time.Time // last sign of life of etcd before a list was read anew
	relists uint64

	recorded recent[metadata.Ending]
	actions  recent[metadata.Action]
}

// gap is a time in which the watch was interrupted: a hold that began and ended in it was not seen.
type gap struct{ From, To time.Time }

const (
	maxSeen     = 10_000
	maxGaps     = 100
	maxSeenAge  = 7 * 24 * time.Hour
	maxRecorded = 2000 // endings read from etcd
	pastEvery   = 5 * time.Second
)

// Ended tells the dashboard of a hold that went; ending is nil when its holder released it. It is quick.
func (d *Dashboard) Ended(r *metadata.Record, ending *metadata.Ending) {
	e := metadata.NewEnding(r, metadata.EndedReleased, "", "", d.config.Now())
	if ending != nil {
		e = *ending
	}
	e.EndedAt = metadata.Time{Time: e.EndedAt.Truncate(time.Millisecond)}
	e.Attributes, e.Purpose, e.Progress = nil, text.Clip(e.Purpose, maxLineShown), text.Clip(e.Progress, maxLineShown)
	d.past.mu.Lock()
	defer d.past.mu.Unlock()
	if d.past.seen = append(d.past.seen, e); len(d.past.seen) > maxSeen+maxSeen/10 {
		d.past.seen = slices.Clone(d.past.seen[len(d.past.seen)-maxSeen:])
	}
}

// observe notes gaps in the watch.
func (d *Dashboard) observe(now time.Time, fresh locks.Freshness) {
	p := &d.past
	if fresh.Heard.IsZero() || d.config.Relists == nil {
		return
	}
	relists := d.config.Relists()
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.since.IsZero():
		p.since = now
	case relists != p.relists:
		if p.gaps = append(p.gaps, gap{p.heard, now}); len(p.gaps) > maxGaps {
			p.gaps = p.gaps[1:]
		}
	case !fresh.Synced:
		return
	}
	p.heard, p.relists = fresh.Heard, relists
}

// recent is what etcd said last; one reads it for all who ask.
type recent[T any] struct {
	reading sync.Mutex // by one at a time

	mu    sync.Mutex
	list  []T
	err   error // of the last read
	stamp time.Time
}

// get reads at most once in pastEvery. When etcd does not answer, what it said last is returned with the error.
func (k *recent[T]) get(ctx context.Context, now time.Time, read func(context.Context, int) ([]T, error)) ([]T, error) {
	if read == nil {
		return nil, nil
	}
	k.reading.Lock()
	defer k.reading.Unlock()
	if list, age, err := k.known(now); age >= 0 && age < pastEvery {
		return list, err // a silent etcd is not asked anew by each of them
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readTimeout)
	defer cancel()
	list, err := read(ctx, maxRecorded)
	k.mu.Lock()
	defer k.mu.Unlock()
	if err == nil {
		k.list = list
	}
	k.err, k.stamp = err, now
	return k.list, k.err
}

// known is what etcd said last, how long ago, and the error of the last read.
func (k *recent[T]) known(now time.Time) (list []T, age time.Duration, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.list, now.Sub(k.stamp), k.err
}

// forget makes the next one read again.
func (k *recent[T]) forget() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.stamp = time.Time{}
}

// endings are the holds of a lock that are known to be over, newest first; "" is all locks. What stands in etcd is
// exact and wins over what was seen.
func (d *Dashboard) endings(r *request, lock string) ([]metadata.Ending, error) {
	now := r.now
	recorded, err := await(r.Context(), d, func(ctx context.Context) ([]metadata.Ending, error) {
		return d.past.recorded.get(ctx, now, d.config.History)
	})
	if errors.Is(err, errSilent) {
		recorded, _, _ = d.past.recorded.known(now)
	}
	type hold struct {
		lock  string
		token int64
	}
	var all []metadata.Ending
	have := map[hold]bool{}
	for i := range recorded {
		if e := &recorded[i]; lock == "" || e.Lock == lock {
			all, have[hold{e.Lock, e.Token}] = append(all, *e), true
		}
	}
	oldest := now.Add(-maxSeenAge)
	d.past.mu.Lock()
	for i := range d.past.seen {
		e := &d.past.seen[i]
		if (lock == "" || e.Lock == lock) && e.EndedAt.After(oldest) && !have[hold{e.Lock, e.Token}] {
			all = append(all, *e)
		}
	}
	d.past.mu.Unlock()
	slices.SortStableFunc(all, newestFirst)
	return all, err
}

func newestFirst(a, b metadata.Ending) int {
	if c := b.EndedAt.Compare(a.EndedAt.Time); c != 0 {
		return c
	}
	return int(min(max(b.Token-a.Token, -1), 1))
}

// watched are the gaps and since when the dashboard watches.
func (d *Dashboard) watched(r *request) ([]gap, time.Time) {
	d.observe(r.now, r.fresh)
	d.past.mu.Lock()
	defer d.past.mu.Unlock()
	return slices.Clone(d.past.gaps), d.past.since
}

// remembered is the ending of a hold as the dashboard saw it, or nil.
func (d *Dashboard) remembered(name, hold string) *metadata.Ending {
	d.past.mu.Lock()
	defer d.past.mu.Unlock()
	for i := len(d.past.seen) - 1; i >= 0; i-- {
		e := d.past.seen[i]
		if r := (metadata.Record{UUID: e.UUID, Token: e.Token}); e.Lock == name &&
			(e.UUID == hold || r.HistoryID() == hold) {
			return &e
		}
	}
	return nil
}
