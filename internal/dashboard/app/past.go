package app

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/clustermutex/unlocker/internal/dashboard/etcdread"
	"github.com/clustermutex/unlocker/internal/dashboard/timeline"
	"github.com/clustermutex/unlocker/internal/locks"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// maxCurrent is the maximum number of current holds, and of waits, in a chart: those of locks with waiters or trouble
// come first.
const maxCurrent = 10_000

// IntervalsSince returns the holds and waits since a time. Short ones before incompleteBefore may be missing. With an
// error, those holds are missing that have ended and that only etcd knows.
func (s *App) IntervalsSince(r *Request, since time.Time) (
	all []timeline.Interval, incompleteBefore time.Time, readErr error) {
	ctx, cancel := r.Context(), func() {}
	if r.Level() == locks.Stale { // what etcd said before is known
		ctx, cancel = context.WithTimeoutCause(ctx, etcdread.ShortTimeout, etcdread.ErrTimedOut)
	}
	defer cancel()
	endings, readErr := s.History.Endings(ctx, r.Now, "")
	var over, now []timeline.Interval
	for i := range endings {
		if endings[i].EndedAt.After(since) {
			over = append(over, timeline.FromEnding(&endings[i]))
		}
	}
	if snapshot, notYet := r.Loaded(); notYet == nil {
		now = currentIntervals(snapshot)
	}
	if until := s.Intervals.IncompleteBefore(); until.After(since) {
		incompleteBefore = until
	}
	return timeline.Merge(r.Now, over, s.Intervals.Since(since, nil), now), incompleteBefore, readErr
}

func currentIntervals(s *locks.Snapshot) (all []timeline.Interval) {
	for _, row := range s.InOrder(locks.Order{By: locks.MostUrgent}) {
		if len(all) < maxCurrent {
			all = append(all, timeline.FromRecord(row.Record))
		}
	}
	most := len(all) + maxCurrent
	for _, lock := range slices.Sorted(maps.Keys(s.Queues)) {
		all = append(all, timeline.FromQueue(s.Queues[lock][:min(len(s.Queues[lock]), most-len(all))])...)
	}
	return all
}

// LockIntervals is IntervalsSince for one lock and its shares. past are its endings.
func (s *App) LockIntervals(r *Request, l *Lock, past []metadata.Ending) (
	all []timeline.Interval, incompleteBefore time.Time) {
	var over, now []timeline.Interval
	for i := range past {
		over = append(over, timeline.FromEnding(&past[i]))
	}
	holders := slices.Concat(l.Shares, r.Snapshot().LeasedNamed(l.Name))
	queue := l.Name
	if l.Row != nil {
		holders = append([]*locks.Row{l.Row}, holders...)
		queue = l.Row.Record.QueueName()
	}
	for _, row := range holders[:min(len(holders), maxCurrent)] {
		now = append(now, timeline.FromRecord(row.Record))
	}
	seen := s.Intervals.Since(r.Now.Add(-timeline.MaxAge), func(i *timeline.Interval) bool {
		return i.Name == l.Name || i.Lock == l.Name || i.Wait && i.Lock == queue
	})
	waits := timeline.FromQueue(l.Waiters[:min(len(l.Waiters), maxCurrent)])
	return timeline.Merge(r.Now, over, seen, now, waits), s.Intervals.IncompleteBefore()
}

// UnwatchedSpans returns when the locks were not watched: before the dashboard ran, and while etcd was unavailable.
func (r *Request) UnwatchedSpans() []timeline.Span {
	gaps, since := r.App.History.WatchGaps(r.Now, r.Fresh)
	if since.IsZero() {
		return []timeline.Span{{To: r.Now}}
	}
	spans := append([]timeline.Span{{To: since}}, gaps...)
	if r.Level() == locks.Stale {
		spans = append(spans, timeline.Span{From: r.Fresh.HeardAt, To: r.Now})
	}
	return spans
}

// ReadErrorText describes an error of a read from etcd; empty for nil.
func (s *App) ReadErrorText(err error) string {
	switch {
	case err == nil:
		return ""
	case errors.Is(err, etcdread.ErrTimedOut):
		return err.Error()
	}
	return s.Config.Explain(err)
}
