package site

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/clustermutex/unlocker/internal/dashboard/access"
	"github.com/clustermutex/unlocker/internal/dashboard/etcdread"
	"github.com/clustermutex/unlocker/internal/dashboard/history"
	"github.com/clustermutex/unlocker/internal/dashboard/intervals"
	"github.com/clustermutex/unlocker/internal/dashboard/lanes"
	"github.com/clustermutex/unlocker/internal/dashboard/locks"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// maxPresent is how many holds, and how many waits, that last are drawn from: those of locks with waiters or trouble
// come first.
const maxPresent = 10_000

// Everything returns the holds and waits since a time, in all clusters that the caller may view. Short ones before
// forgot may be missing; if it is zero, none is.
func (s *Site) Everything(r *Request, since time.Time) (all []intervals.Interval, forgot time.Time, unread Unread) {
	lists, unread := fromEach(r, access.View, func(part *Request) ([][]intervals.Interval, error) {
		ctx, cancel := part.Context(), func() {}
		if part.Level() == locks.Stale { // what etcd said before is known
			ctx, cancel = context.WithTimeoutCause(ctx, etcdread.Hurry, etcdread.ErrSilent)
		}
		defer cancel()
		endings, err := part.Site.History.Endings(ctx, part.Now, "")
		over := make([]intervals.Interval, 0, len(endings))
		for i := range endings {
			if endings[i].EndedAt.After(since) {
				over = append(over, intervals.OfEnding(&endings[i]))
			}
		}
		sources := [][]intervals.Interval{over, part.Site.Intervals.Since(since, nil)}
		if now, notYet := part.Loaded(); notYet == nil {
			sources = append(sources, present(now))
		}
		for _, source := range sources {
			for i := range source {
				source[i].Cluster = part.Site.URLs.Cluster
			}
		}
		return sources, err
	})
	for _, part := range r.Each() {
		if until := part.Site.Intervals.Forgot(); until.After(forgot) && until.After(since) {
			forgot = until
		}
	}
	return intervals.Join(r.Now, slices.Concat(lists...)...), forgot, unread
}

// present are the holds and waits of a snapshot.
func present(s *locks.Snapshot) (all []intervals.Interval) {
	urgent := func(r *locks.Row) bool { return r.Waiters > 0 || r.Display != locks.Held }
	for _, now := range []bool{true, false} {
		for _, row := range s.Rows {
			if len(all) < maxPresent && urgent(row) == now {
				all = append(all, intervals.OfRecord(row.Record))
			}
		}
	}
	most := len(all) + maxPresent
	for _, lock := range slices.Sorted(maps.Keys(s.Queues)) {
		all = append(all, intervals.OfQueue(s.Queues[lock][:min(len(s.Queues[lock]), most-len(all))])...)
	}
	return all
}

// EverythingOf is the same for a lock of one cluster, and its shares. past are the holds that are over.
func (s *Site) EverythingOf(r *Request, l *Lock, past []metadata.Ending) (all []intervals.Interval, forgot time.Time) {
	var over, now []intervals.Interval
	for i := range past {
		over = append(over, intervals.OfEnding(&past[i]))
	}
	holders := l.Shares
	queue := l.Name
	if l.Row != nil {
		holders = []*locks.Row{l.Row}
		queue = l.Row.Record.Queue()
	}
	for _, row := range holders {
		now = append(now, intervals.OfRecord(row.Record))
	}
	seen := s.Intervals.Since(r.Now.Add(-intervals.Day), func(i *intervals.Interval) bool {
		return i.Name == l.Name || i.Lock == l.Name || i.Wait && i.Lock == queue
	})
	return intervals.Join(r.Now, over, seen, now, intervals.OfQueue(l.InLine)), s.Intervals.Forgot()
}

// relistReports is how long after a gap in the watch the holds may be reported that ended in it.
const relistReports = 2 * time.Second

// UsualHold returns the median length of those of a lock's holds that the dashboard saw released, and their number;
// zeros if they are too few. A hold that ended in a gap in the watch does not count: nobody knows when, nor how.
func (s *Site) UsualHold(r *Request, all []intervals.Interval) (median time.Duration, holds int) {
	gaps, _ := s.History.Watched(r.Now, r.Fresh)
	seen := slices.DeleteFunc(slices.Clone(all), func(i intervals.Interval) bool {
		return slices.ContainsFunc(gaps, func(g history.Gap) bool {
			return !i.End.Before(g.From) && !i.End.After(g.To.Add(relistReports))
		})
	})
	return intervals.UsualHold(seen)
}

// Unwatched is when nobody watched the locks of the cluster: before the dashboard ran, and while etcd was away.
func (r *Request) Unwatched() []lanes.Span {
	gaps, since := r.Site.History.Watched(r.Now, r.Fresh)
	if since.IsZero() {
		return []lanes.Span{{To: r.Now}}
	}
	spans := []lanes.Span{{To: since}}
	for _, g := range gaps {
		spans = append(spans, lanes.Span{From: g.From, To: g.To})
	}
	if r.Level() == locks.Stale {
		spans = append(spans, lanes.Span{From: r.Fresh.Heard, To: r.Now})
	}
	return spans
}

// Unread says of which clusters the past could not be read, and why.
type Unread struct {
	Why string // for people; empty: all was read
	Err error  // where nothing was read
	// By is why, by the cluster.
	By map[string]string
}

// Holds are the holds that are over of all clusters that the caller may view, newest first.
func (s *Site) Holds(r *Request) ([]history.Hold, Unread) {
	lists, unread := fromEach(r, access.View, func(part *Request) ([]history.Hold, error) {
		if r.Several() && part.Level() == locks.Stale { // the others are not held up by one that is known to be away
			ctx, cancel := context.WithTimeoutCause(r.Context(), etcdread.Hurry, etcdread.ErrSilent)
			defer cancel()
			return part.Site.History.Holds(ctx, r.Now)
		}
		return part.Site.History.Holds(r.Context(), r.Now)
	})
	return history.Newest(lists, (*history.Hold).Place), unread
}

// OperatorActions is what operators did in all clusters of which the caller may see that, newest first.
func (s *Site) OperatorActions(r *Request) ([]history.OperatorAction, Unread) {
	lists, unread := fromEach(r, access.Audit, func(part *Request) ([]history.OperatorAction, error) {
		return part.Site.History.OperatorActions(r.Context(), r.Now)
	})
	return history.Newest(lists, (*history.OperatorAction).Place), unread
}

// fromEach asks all clusters at once in which the caller has the permission. One that does not answer holds up the
// others no longer than a page waits for etcd.
func fromEach[T any](r *Request, need access.Permission, ask func(*Request) ([]T, error)) ([][]T, Unread) {
	var parts []*Request
	for _, part := range r.Each() {
		if part.Caller.May(need) {
			parts = append(parts, part)
		}
	}
	lists := make([][]T, len(parts))
	errs := make([]error, len(parts))
	locks.AtOnce(len(parts), func(i int) { lists[i], errs[i] = ask(parts[i]) })
	unread := Unread{By: map[string]string{}}
	failed := 0
	for i, part := range parts {
		if errs[i] == nil {
			continue
		}
		failed++
		why := part.Site.Config.Explain(errs[i])
		if errors.Is(errs[i], etcdread.ErrSilent) {
			why = errs[i].Error()
		}
		unread.By[part.Site.URLs.Cluster] = why
		if r.Several() {
			why = fmt.Sprintf("%s: %s", part.Site.Config.Cluster.Shown(), why)
		}
		unread.Why = strings.TrimPrefix(unread.Why+"; "+why, "; ")
	}
	if failed == len(parts) && failed > 0 {
		unread.Err = errors.Join(errs...)
	}
	return lists, unread
}
