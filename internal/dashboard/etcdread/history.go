package etcdread

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/clustermutex/unlocker/internal/dashboard/timeline"
	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/locks"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// History is the list of ended holds. etcd has those that an unlocker or an operator ended; releases are recorded
// nowhere, so the dashboard keeps those that it saw, in memory, up to a limit.
type History struct {
	etcd         HistoryReader
	countRelists func() uint64
	log          zerolog.Logger

	mu           sync.Mutex
	seen         []metadata.Ending // by the watch, oldest first
	gaps         []timeline.Span   // in the watch, oldest first: a hold that began and ended in one was not seen
	since        time.Time         // when the dashboard began to watch
	droppedUntil time.Time         // when the newest hold ended that was dropped from seen; zero if none was

	heard   time.Time // last sign of life of etcd before a list was read anew
	relists uint64

	recorded listCache[metadata.Ending]
	audited  listCache[protocol.Action]
}

// HistoryReader reads lists from etcd, newest first: endings of holds that their holders did not release, and the audit
// trail.
type HistoryReader interface {
	ReadHistory(ctx context.Context, limit int) ([]metadata.Ending, error)
	ReadAudit(ctx context.Context, limit int) ([]protocol.Action, error)
}

// NewHistory returns an empty history. countRelists counts how often the snapshot was read anew because the watch was
// interrupted.
func NewHistory(etcd HistoryReader, countRelists func() uint64, log zerolog.Logger) *History {
	return &History{etcd: etcd, countRelists: countRelists, log: log}
}

const (
	maxTextSeen = 240 // bytes of a text of a hold that was seen
	maxSeen     = 10_000
	maxGaps     = 100
	maxSeenAge  = 7 * 24 * time.Hour
	maxRecorded = 2000 // endings read from etcd
	RereadEvery = 5 * time.Second
)

// AddEnded adds a hold that has ended, and returns its ending; ending is nil if the holder released it.
func (s *History) AddEnded(r *metadata.Record, ending *metadata.Ending, now time.Time) *metadata.Ending {
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
		s.droppedUntil = s.seen[len(s.seen)-maxSeen-1].EndedAt.Time
		s.seen = slices.Clone(s.seen[len(s.seen)-maxSeen:])
	}
	return &e
}

// kindOf returns the attribute with the kind of a share, without the others, which need memory.
func kindOf(e *metadata.Ending) map[string]any {
	if share := e.Share(); share.Kind != "" {
		return map[string]any{metadata.AttributeKind: share.Kind}
	}
	return nil
}

func (s *History) Observe(now time.Time, fresh locks.Freshness) {
	if fresh.HeardAt.IsZero() {
		return
	}
	relists := s.countRelists()
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.since.IsZero():
		s.since = now
	case relists != s.relists:
		if s.gaps = append(s.gaps, timeline.Span{From: s.heard, To: now}); len(s.gaps) > maxGaps {
			s.gaps = s.gaps[1:]
		}
	case !fresh.Synced:
		return
	}
	s.heard = fresh.HeardAt
	s.relists = relists
}

// listCache is a list as etcd last returned it; concurrent callers share one read.
type listCache[T any] struct {
	reading sync.Mutex // one at a time
	current atomic.Pointer[cachedList[T]]
}

type cachedList[T any] struct {
	list []T
	err  error // of the last read
	at   time.Time
}

// get reads at most once in RereadEvery. When etcd does not answer, the list before is returned with the error.
func (c *listCache[T]) get(ctx context.Context, now time.Time,
	read func(context.Context, int) ([]T, error)) ([]T, error) {
	c.reading.Lock()
	defer c.reading.Unlock()
	last := c.last()
	if age := now.Sub(last.at); age >= 0 && age < RereadEvery {
		return last.list, last.err // a silent etcd is not asked anew by each of them
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), Timeout)
	defer cancel()
	list, err := read(ctx, maxRecorded)
	if err != nil {
		list = last.list
	}
	c.current.Store(&cachedList[T]{list, err, now})
	return list, err
}

func (c *listCache[T]) last() cachedList[T] {
	if last := c.current.Load(); last != nil {
		return *last
	}
	return cachedList[T]{}
}

// invalidate makes the next call of get read again.
func (c *listCache[T]) invalidate() {
	last := c.last()
	c.current.Store(&cachedList[T]{list: last.list, err: last.err})
}

// Endings returns the holds of a lock, or of its shares, that are known to be over, newest first; "" is all locks. What
// stands in etcd is exact and wins over what was seen.
func (s *History) Endings(ctx context.Context, now time.Time, lock string) ([]metadata.Ending, error) {
	recorded, err := Await(ctx, s.log, func(ctx context.Context) ([]metadata.Ending, error) {
		return s.recorded.get(ctx, now, s.etcd.ReadHistory)
	})
	if errors.Is(err, ErrTimedOut) {
		recorded = s.recorded.last().list
	}
	of := func(e *metadata.Ending) bool {
		return lock == "" || e.Name == lock || e.Share().LockName == lock
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

// WatchGaps returns the gaps in the watch, and when it began.
func (s *History) WatchGaps(now time.Time, fresh locks.Freshness) ([]timeline.Span, time.Time) {
	s.Observe(now, fresh)
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.gaps), s.since
}

// CompleteSince returns the time since which no hold that the dashboard saw was dropped; zero if it has seen nothing.
func (s *History) CompleteSince(now time.Time) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.since.IsZero() {
		return s.since
	}
	return protocol.Later(s.since, protocol.Later(s.droppedUntil, now.Add(-maxSeenAge)))
}

// FindSeen returns the ending of a hold as the dashboard saw it, or nil.
func (s *History) FindSeen(name, hold string) *metadata.Ending {
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

// Actions returns the audit trail, newest first.
func (s *History) Actions(ctx context.Context, now time.Time) ([]protocol.Action, error) {
	all, err := s.audited.get(ctx, now, s.etcd.ReadAudit)
	actions := slices.Clone(all)
	slices.SortStableFunc(actions, func(a, b protocol.Action) int {
		return cmp.Or(b.At.Compare(a.At.Time), cmp.Compare(b.Token, a.Token))
	})
	return actions, err
}

// Invalidate drops the cached lists, because the dashboard has just written to etcd.
func (s *History) Invalidate() {
	s.recorded.invalidate()
	s.audited.invalidate()
}

// minUsual is the number of holds below which none of them is called usual, and maxReportDelay how long after a gap in
// the watch the holds may be reported that ended in it.
const (
	minUsual       = 3
	maxReportDelay = 2 * time.Second
)

// UsualHold returns the median length of the holds that the dashboard saw released, and their number; zeros for fewer
// than three. A hold does not count if it ended in a gap, because nobody knows when, nor if it has no length: its
// begin is unknown, or its holder's clock is ahead.
func UsualHold(past []metadata.Ending, gaps []timeline.Span) (median time.Duration, holds int) {
	var lengths []time.Duration
	for i := range past {
		e := &past[i]
		inGap := func(g timeline.Span) bool {
			return !e.EndedAt.Before(g.From) && !e.EndedAt.After(g.To.Add(maxReportDelay))
		}
		if e.Cause == metadata.EndingReleased && !e.LockedAt.IsZero() && e.EndedAt.After(e.LockedAt.Time) &&
			!slices.ContainsFunc(gaps, inGap) {
			lengths = append(lengths, e.EndedAt.Sub(e.LockedAt.Time))
		}
	}
	if holds = len(lengths); holds < minUsual {
		return 0, 0
	}
	slices.Sort(lengths)
	return (lengths[(holds-1)/2] + lengths[holds/2]) / 2, holds
}
