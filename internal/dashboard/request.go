package dashboard

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/clustermutex/unlocker/internal/dashboard/access"
	"github.com/clustermutex/unlocker/internal/dashboard/locks"
	"github.com/clustermutex/unlocker/internal/dashboard/phrase"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

// request is a request with all that its answer is made from. It is made once, so that one answer has one now, one
// freshness and one snapshot.
type request struct {
	*http.Request
	caller   access.Caller
	now      time.Time
	mono     time.Duration // now on the clock of the records' Seen times
	fresh    locks.Freshness
	snapshot func() *locks.Snapshot // as of now; while etcd is silent, as of its last sign of life
}

type requestKey struct{}

// requestOf is the request that was made at the door. Where that was not reached it is one of nobody, who may nothing.
func (d *Dashboard) requestOf(r *http.Request) *request {
	if made, ok := r.Context().Value(requestKey{}).(*request); ok {
		return made
	}
	return d.newRequest(r, access.Caller{})
}

func (d *Dashboard) newRequest(r *http.Request, c access.Caller) *request {
	made := &request{Request: r, caller: c, now: d.config.Now(), mono: d.config.Clock(), fresh: d.config.Fresh()}
	made.snapshot = sync.OnceValue(func() *locks.Snapshot { return d.snapshotAt(made.now, made.mono, made.fresh) })
	return made
}

// door finds out who asks, and makes the request. What the caller may do is for the handlers to check.
func (d *Dashboard) door(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := d.config.Access.Identify(r)
		c.Origin = d.urls.originFor(r)
		if d.config.HideBacktraces {
			c = c.Without(access.Backtrace)
		}
		made := d.newRequest(r, c)
		made.Request = r.WithContext(context.WithValue(r.Context(), requestKey{}, made))
		next.ServeHTTP(w, made.Request)
	})
}

// with is the request under another context.
func (r *request) with(ctx context.Context) *request {
	other := *r
	other.Request = r.WithContext(ctx)
	return &other
}

// level is how far the snapshot can be trusted.
func (r *request) level() locks.Level { return r.fresh.Level(r.now) }

// viewpoint is the point in time from which the answer looks at the locks.
func (r *request) viewpoint() phrase.Viewpoint { return r.fresh.Viewpoint(r.now) }

// loaded returns the locks, or the problem that there is nothing to show yet.
func (r *request) loaded() (*locks.Snapshot, error) {
	if r.level() != locks.Never {
		return r.snapshot(), nil
	}
	return nil, &problem{Status: http.StatusServiceUnavailable, Code: "not_loaded", Title: "No data yet",
		Retry:  5 * time.Second,
		Detail: "The locks could not be loaded from etcd since the dashboard started: " + r.fresh.Reason() + "."}
}

// snapshotAt returns the locks as they stand now. While etcd is silent the states stay as they were last known for
// sure.
func (d *Dashboard) snapshotAt(now time.Time, mono time.Duration, fresh locks.Freshness) *locks.Snapshot {
	at := staleness.Moment{Wall: now, Mono: mono}
	if fresh.Level(now) == locks.Stale {
		at.Mono -= now.Sub(fresh.Heard)
		at.Wall = fresh.Heard
	}
	return d.snapshots.Current(now, at)
}
