package site

import (
	"net/http"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/clustermutex/unlocker/internal/dashboard/access"
	"github.com/clustermutex/unlocker/internal/protocol"
)

// Admit checks that the caller may do what it asks for, with one lock at least.
func (s *Site) Admit(c access.Caller, need access.Permission) error {
	if c.MaySome(need) {
		return nil
	}
	return s.refusal(c, need)
}

// AdmitFor checks that the caller may do it with the locks of this owner.
func (s *Site) AdmitFor(c access.Caller, need access.Permission, owner string) error {
	switch {
	case c.MayFor(need, owner):
		return nil
	case c.MaySome(need):
		return &Problem{Status: http.StatusForbidden, Code: "forbidden", Title: "Not permitted",
			Detail: c.Shown() + " has the permission " + string(need) + " for locks of other owners, not for this one."}
	}
	return s.refusal(c, need)
}

// MayDo reports whether the caller may do this to holds of this owner, and it is switched on.
func (s *Site) MayDo(r *Request, v protocol.Verb, owner string) bool {
	return s.Config.On(v) && r.Caller.MayFor(access.Permission(v.Facts().Right), owner)
}

// refusal says why the caller may not.
func (s *Site) refusal(c access.Caller, need access.Permission) error {
	switch {
	case c.Unnamed != "":
		return &Problem{Status: http.StatusUnauthorized, Code: "unauthenticated", Title: "Sign in",
			Detail: "This dashboard wants to know who you are, and " + c.Unnamed + "."}
	case need == access.Backtrace && s.Config.HideBacktraces && c.May(access.View):
		return &Problem{Status: http.StatusForbidden, Code: "forbidden", Title: "No backtraces here",
			Detail: "Backtraces are switched off on this dashboard."}
	case !c.May(access.View):
		need = access.View
	}
	return &Problem{Status: http.StatusForbidden, Code: "forbidden", Title: "Not permitted",
		Detail: "This needs the permission " + string(need) + ", which " + c.Shown() + " does not have."}
}

// NoBacktraces says why the caller sees no backtraces of this owner; empty when it may.
func (s *Site) NoBacktraces(c access.Caller, owner string) string {
	switch {
	case c.MayFor(access.Backtrace, owner):
		return ""
	case s.Config.HideBacktraces:
		return "Backtraces are switched off on this dashboard."
	case c.MaySome(access.Backtrace):
		return "You see backtraces of other owners only."
	}
	return "Backtraces need the permission backtrace."
}

// How many refusals of one caller the log has in a minute, and how many callers are told apart. All refusals are
// counted by metrics.
const (
	linesEach    = 10
	quietCallers = 1000
)

// Refusals cost nothing to cause, and are kept from filling the log. Callers without a name are one.
type Refusals struct {
	mu    sync.Mutex
	since time.Time
	lines map[string]int // by caller
}

// Take reports whether a refusal of this caller is logged, and how many were left out before, in the last minute that
// had any.
func (r *Refusals) Take(who string, now time.Time) (logged bool, leftOut int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now.Sub(r.since) >= time.Minute || now.Before(r.since) {
		for _, n := range r.lines {
			leftOut += max(0, n-linesEach)
		}
		r.since = now
		r.lines = map[string]int{}
	}
	if _, known := r.lines[who]; !known && len(r.lines) >= quietCallers {
		who = ""
	}
	r.lines[who]++
	return r.lines[who] <= linesEach, leftOut
}

// LeftOutOf says in a line of the log how many like it were left out before.
func LeftOutOf(e *zerolog.Event, n int) *zerolog.Event {
	if n == 0 {
		return e
	}
	return e.Int("left_out", n)
}
