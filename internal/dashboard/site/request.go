package site

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

// Request is a request with all that its answer is made from. It is made once, so that one answer has one now, one
// freshness and one snapshot.
type Request struct {
	*http.Request
	Site     *Site
	Caller   access.Caller
	Now      time.Time
	mono     time.Duration // now on the clock of the records' Seen times
	Fresh    locks.Freshness
	Snapshot func() *locks.Snapshot // as of now; while etcd is silent, as of its last sign of life
	parts    []*Request             // to several clusters
	whole    *Request               // of which this is a part
}

type requestKey struct{}

// RequestOf is the request that was made at the door. Where that was not reached it is one of nobody, who may nothing.
func (s *Site) RequestOf(r *http.Request) *Request {
	if made, ok := r.Context().Value(requestKey{}).(*Request); ok {
		same := *made
		same.Request = r // as the middleware left it
		return &same
	}
	return s.NewRequest(r, access.Caller{})
}

// NewRequest makes the request of a caller, as of now.
func (s *Site) NewRequest(r *http.Request, c access.Caller) *Request {
	now := s.Config.Now()
	made := s.newPart(c, now)
	if len(s.Parts) > 0 {
		made = s.newWhole(c, now)
	}
	made.Request = r.WithContext(context.WithValue(r.Context(), requestKey{}, made))
	return made
}

// newPart is the request to one cluster.
func (s *Site) newPart(c access.Caller, now time.Time) *Request {
	made := &Request{Site: s, Caller: c.In(s.Config.Cluster.Name), Now: now, mono: s.Config.View.Clock(),
		Fresh: s.Fresh()}
	made.Snapshot = sync.OnceValue(func() *locks.Snapshot { return s.SnapshotAt(made.Now, made.mono, made.Fresh) })
	return made
}

// With is the request under another context.
func (r *Request) With(ctx context.Context) *Request {
	other := *r
	other.Request = r.WithContext(ctx)
	return &other
}

// Level is how far the snapshot can be trusted.
func (r *Request) Level() locks.Level { return r.Fresh.Level(r.Now) }

// Viewpoint is the point in time from which the answer looks at the locks.
func (r *Request) Viewpoint() phrase.Viewpoint { return r.Fresh.Viewpoint(r.Now) }

// Loaded returns the locks, or the problem that there is nothing to show yet.
func (r *Request) Loaded() (*locks.Snapshot, error) {
	if r.Level() != locks.Never {
		return r.Snapshot(), nil
	}
	return nil, &Problem{Status: http.StatusServiceUnavailable, Code: "not_loaded", Title: "No data yet",
		Retry:  5 * time.Second,
		Detail: "The locks could not be loaded from etcd since the dashboard started: " + noneLoaded(r) + "."}
}

// SnapshotAt returns the locks as they stand now. While etcd is silent, the states stay as they were last known.
func (s *Site) SnapshotAt(now time.Time, mono time.Duration, fresh locks.Freshness) *locks.Snapshot {
	at := fresh.JudgedAt(now)
	return s.Snapshots.Current(now, staleness.Moment{Wall: at, Mono: mono - now.Sub(at)})
}
