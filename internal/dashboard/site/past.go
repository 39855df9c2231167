package site

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/clustermutex/unlocker/internal/dashboard/access"
	"github.com/clustermutex/unlocker/internal/dashboard/etcdread"
	"github.com/clustermutex/unlocker/internal/dashboard/history"
	"github.com/clustermutex/unlocker/internal/dashboard/locks"
)

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
