package app

import (
	"cmp"
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/clustermutex/unlocker/internal/dashboard/access"
	"github.com/clustermutex/unlocker/internal/locks"
	"github.com/clustermutex/unlocker/internal/protocol"
)

// Request is a request with all that its answer is made from. It is made once, so that one answer has one now, one
// freshness and one snapshot.
type Request struct {
	*http.Request
	App      *App
	Caller   access.Caller
	Now      time.Time
	Fresh    locks.Freshness
	Snapshot func() *locks.Snapshot // as of now; while etcd is silent, as of its last sign of life
}

type requestKey struct{}

// RequestFrom returns the request that the authentication made, else one of a caller without rights.
func (s *App) RequestFrom(r *http.Request) *Request {
	if made, ok := r.Context().Value(requestKey{}).(*Request); ok {
		same := *made
		same.Request = r // as the middleware left it
		return &same
	}
	return s.NewRequest(r, access.Caller{})
}

func (s *App) NewRequest(r *http.Request, c access.Caller) *Request {
	made := &Request{App: s, Caller: c, Now: s.Config.Now(), Fresh: s.Fresh()}
	made.Snapshot = sync.OnceValue(func() *locks.Snapshot { return s.Config.Snapshots.Current(made.Now, made.Fresh) })
	made.Request = r.WithContext(context.WithValue(r.Context(), requestKey{}, made))
	return made
}

func (r *Request) With(ctx context.Context) *Request {
	other := *r
	other.Request = r.WithContext(ctx)
	return &other
}

func (r *Request) Level() locks.Level { return r.Fresh.Level(r.Now) }

// Viewpoint returns the point in time from which the answer looks at the locks.
func (r *Request) Viewpoint() Viewpoint { return viewpoint(r.Fresh, r.Now) }

func viewpoint(f locks.Freshness, now time.Time) Viewpoint {
	if f.Level(now) == locks.Stale {
		return Viewpoint{Now: now, AsOf: f.HeardAt, Stale: true}
	}
	return LiveAt(now)
}

// Loaded returns the locks, or the problem that there is nothing to show yet.
func (r *Request) Loaded() (*locks.Snapshot, error) {
	if r.Level() != locks.Never {
		return r.Snapshot(), nil
	}
	return nil, &HTTPError{Status: http.StatusServiceUnavailable, Code: "not_loaded", Title: "No data yet",
		Retry: 5 * time.Second, Endpoints: r.App.Config.Endpoints,
		Detail: "The locks could not be loaded from etcd since the dashboard started: " +
			cmp.Or(r.Fresh.Cause, "no answer") + "."}
}

// Authorize returns an error unless the caller has the permission for at least some locks.
func (s *App) Authorize(c access.Caller, need access.Permission) error {
	if c.MaySome(need) {
		return nil
	}
	return s.refusal(c, need)
}

// AuthorizeFor returns an error unless the caller has the permission for the locks of this owner.
func (s *App) AuthorizeFor(c access.Caller, need access.Permission, owner string) error {
	switch {
	case c.MayFor(need, owner):
		return nil
	case c.MaySome(need):
		return &HTTPError{Status: http.StatusForbidden, Code: "forbidden", Title: "Not permitted",
			Detail: c.DisplayName() + " has the permission " + string(need) +
				" for other owners' locks, not for this one." +
				s.Config.Access.DescribeGroups(c)}
	}
	return s.refusal(c, need)
}

// MayDo reports whether the caller may do this to holds of this owner, and it is switched on.
func (r *Request) MayDo(v protocol.Verb, owner string) bool {
	return r.App.Config.IsEnabled(v) && r.Caller.MayFor(access.Permission(v.Info().Permission), owner)
}

func (s *App) refusal(c access.Caller, need access.Permission) error {
	switch {
	case c.WhyUnnamed != "":
		return &HTTPError{Status: http.StatusUnauthorized, Code: "unauthenticated", Title: "Sign in",
			Detail: "This dashboard needs to know who you are, but " + c.WhyUnnamed + "."}
	case need == access.Backtrace && s.Config.HideBacktraces && c.May(access.View):
		return &HTTPError{Status: http.StatusForbidden, Code: "forbidden", Title: "No backtraces here",
			Detail: "Backtraces are switched off on this dashboard."}
	case !c.May(access.View):
		need = access.View
	}
	return &HTTPError{Status: http.StatusForbidden, Code: "forbidden", Title: "Not permitted",
		Detail: "This needs the permission " + string(need) + ", which " + c.DisplayName() + " does not have." +
			s.Config.Access.DescribeGroups(c)}
}

// WhyNoBacktrace returns why the caller may not see backtraces of this owner; empty if the caller may.
func (s *App) WhyNoBacktrace(c access.Caller, owner string) string {
	switch {
	case c.MayFor(access.Backtrace, owner):
		return ""
	case s.Config.HideBacktraces:
		return "Backtraces are switched off on this dashboard."
	case c.MaySome(access.Backtrace):
		return "You may see backtraces of other owners' locks only."
	}
	return "Backtraces need the permission backtrace."
}

// How many refusals of one caller the log has in a minute, and how many callers are told apart. All refusals are
// counted by metrics.
const (
	maxLinesPerCaller = 10
	maxCallers        = 1000
)

// RefusalLog limits how many refusals are logged, because they cost the caller nothing. Callers without a name count as
// one.
type RefusalLog struct {
	mu    sync.Mutex
	since time.Time
	lines map[string]int // by caller
}

// ShouldLog reports whether a refusal of this caller is to be logged, and how many were left out in the minute before.
func (r *RefusalLog) ShouldLog(who string, now time.Time) (logged bool, leftOut int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now.Sub(r.since) >= time.Minute || now.Before(r.since) {
		for _, n := range r.lines {
			leftOut += max(0, n-maxLinesPerCaller)
		}
		r.since = now
		r.lines = map[string]int{}
	}
	if _, known := r.lines[who]; !known && len(r.lines) >= maxCallers {
		who = ""
	}
	r.lines[who]++
	return r.lines[who] <= maxLinesPerCaller, leftOut
}

// WithLeftOut adds to a log line how many like it were left out.
func WithLeftOut(e *zerolog.Event, n int) *zerolog.Event {
	if n == 0 {
		return e
	}
	return e.Int("left_out", n)
}
