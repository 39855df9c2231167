package etcdread

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/locks"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// History is what is known of holds that are over. How the unlocker and operators ended them stands in etcd; that a
// holder released its lock stands nowhere, so the dashboard remembers what it saw, as long as it lives and within
// bounds.
type History struct {
	source HistorySource

	mu     sync.Mutex
	seen   []metadata.Ending // by the watch, oldest first
	gaps   []Gap             // oldest first
	since  time.Time         // when the dashboard began to watch
	forgot time.Time         // up to when holds that were seen are no longer remembered

	heard   time.Time // last sign of life of etcd before a list was read anew
	relists uint64

	recorded recent[metadata.Ending]
	audited  recent[protocol.Action]
}

// HistorySource is where the past comes from. Each function may be nil: that is not kept, or not known.
type HistorySource struct {
	// History reads how the last holds ended that others than their holders ended, and Audit what operators did, newest
	// first.
	History func(ctx context.Context, limit int) ([]metadata.Ending, error)
	Audit   func(ctx context.Context, limit int) ([]protocol.Action, error)
	// Relists counts how often the snapshot was read anew because the watch was interrupted.
	Relists func() uint64
	Log     zerolog.Logger
}

// NewHistory returns a store that knows nothing yet.
func NewHistory(from HistorySource) *History { return &History{source: from} }

// Gap is a time in which the watch was interrupted: a hold that began and ended in it was not seen.
type Gap struct{ From, To time.Time }

const (
	maxTextSeen = 240 // bytes of a text of a hold that was seen
	maxSeen     = 10_000
	maxGaps     = 100
	maxSeenAge  = 7 * 24 * time.Hour
	maxRecorded = 2000 // endings read from etcd
	RereadEvery = 5 * time.Second
)

// See notes a hold that went, and returns how it ended; ending is nil when its holder released it.
func (s *History) See(r *metadata.Record, ending *metadata.Ending, now time.Time) *metadata.Ending {
	e := lockrecord.ReleaseEnding(r, now)
	if ending != nil {
		e = *ending
	}
	e.EndedAt = metadata.Time{Time: e.EndedAt.Truncate(time.Millisecond)}
	e.Attributes = kindOf(&e)
	e.Purpose = text.Clip(e.Purpose, maxTextSeen)
	e.Progress = text.Clip(e.Progress, maxTextSeen)
	e.Reason = text.Clip(e.Reason, maxTextSeen)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.seen = append(s.seen, e); len(s.seen) > maxSeen+maxSeen/10 {
		s.forgot = s.seen[len(s.seen)-maxSeen-1].EndedAt.Time
		s.seen = slices.Clone(s.seen[len(s.seen)-maxSeen:])
	}
	return &e
}

// kindOf are the attributes that say of which lock the hold had a share, alone.
func kindOf(e *metadata.Ending) map[string]any {
	if share := metadata.ShareFromAttributes(e.Name, e.Attributes); share.Kind != "" {
		return map[string]any{metadata.AttributeKind: share.Kind}
	}
	return nil
}

// Observe notes gaps in the watch.
func (s *History) Observe(now time.Time, fresh locks.Freshness) {
	if fresh.HeardAt.IsZero() {
		return
	}
	relists := s.source.Relists()
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.since.IsZero():
		s.since = now
	case relists != s.relists:
		if s.gaps = append(s.gaps, Gap{s.heard, now}); len(s.gaps) > maxGaps {
			s.gaps = s.gaps[1:]
		}
	case !fresh.Synced:
		return
	}
	s.heard = fresh.HeardAt
	s.relists = relists
}

// recent is what etcd said last; one reads it for all who ask.
type recent[T any] struct {
	reading sync.Mutex // by one at a time

	mu    sync.Mutex
	list  []T
	err   error // of the last read
	stamp time.Time
}

// get reads at most once in RereadEvery. When etcd does not answer, what it said last is returned with the error.
func (r *recent[T]) get(ctx context.Context, now time.Time, read func(context.Context, int) ([]T, error)) ([]T, error) {
	r.reading.Lock()
	defer r.reading.Unlock()
	if list, age, err := r.known(now); age >= 0 && age < RereadEvery {
		return list, err // a silent etcd is not asked anew by each of them
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), Timeout)
	defer cancel()
	list, err := read(ctx, maxRecorded)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil {
		r.list = list
	}
	r.err = err
	r.stamp = now
	return r.list, r.err
}

// known is what etcd said last, how long ago, and the error of the last read.
func (r *recent[T]) known(now time.Time) (list []T, age time.Duration, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.list, now.Sub(r.stamp), r.err
}

// forget makes the next one read again.
func (r *recent[T]) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stamp = time.Time{}
}

// Endings are the holds of a lock, or of its shares, that are known to be over, newest first; "" is all locks.
// What stands in etcd is exact and wins over what was seen.
func (s *History) Endings(ctx context.Context, now time.Time, lock string) ([]metadata.Ending, error) {
	recorded, err := Await(ctx, s.source.Log, func(ctx context.Context) ([]metadata.Ending, error) {
		return s.recorded.get(ctx, now, s.source.History)
	})
	if errors.Is(err, ErrSilent) {
		recorded, _, _ = s.recorded.known(now)
	}
	of := func(e *metadata.Ending) bool {
		return lock == "" || e.Name == lock || metadata.ShareFromAttributes(e.Name, e.Attributes).LockName == lock
	}
	type hold struct {
		lock  string
		token int64
	}
	var all []metadata.Ending
	have := map[hold]bool{}
	for i := range recorded {
		if e := &recorded[i]; of(e) {
			all = append(all, *e)
			have[hold{e.Name, e.Token}] = true
		}
	}
	oldest := now.Add(-maxSeenAge)
	s.mu.Lock()
	for i := range s.seen {
		e := &s.seen[i]
		if of(e) && e.EndedAt.After(oldest) && !have[hold{e.Name, e.Token}] {
			all = append(all, *e)
		}
	}
	s.mu.Unlock()
	slices.SortStableFunc(all, newestFirst)
	return all, err
}

func newestFirst(a, b metadata.Ending) int {
	return cmp.Or(b.EndedAt.Compare(a.EndedAt.Time), cmp.Compare(b.Token, a.Token))
}

// Watched are the gaps and since when the dashboard watches.
func (s *History) Watched(now time.Time, fresh locks.Freshness) ([]Gap, time.Time) {
	s.Observe(now, fresh)
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.gaps), s.since
}

// Reach is since when the dashboard remembers every hold that it saw: since it began to watch or, where those were too
// many, since later. Zero: it has not begun.
func (s *History) Reach(now time.Time) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.since.IsZero() {
		return s.since
	}
	reach := s.since
	for _, t := range []time.Time{s.forgot, now.Add(-maxSeenAge)} {
		if t.After(reach) {
			reach = t
		}
	}
	return reach
}

// Remembered is the ending of a hold as the dashboard saw it, or nil.
func (s *History) Remembered(name, hold string) *metadata.Ending {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := len(s.seen) - 1; i >= 0; i-- {
		e := s.seen[i]
		if e.Name == name && (e.UUID == hold || e.HistoryID() == hold) {
			return &e
		}
	}
	return nil
}

// OperatorActions is what operators did, newest first.
func (s *History) OperatorActions(ctx context.Context, now time.Time) ([]protocol.Action, error) {
	all, err := s.audited.get(ctx, now, s.source.Audit)
	actions := slices.Clone(all)
	slices.SortStableFunc(actions, func(a, b protocol.Action) int {
		return cmp.Or(b.At.Compare(a.At.Time), cmp.Compare(b.Token, a.Token))
	})
	return actions, err
}

// Forget makes the next read go to etcd, because the dashboard has just written to it.
func (s *History) Forget() {
	s.recorded.forget()
	s.audited.forget()
}
