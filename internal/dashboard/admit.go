package dashboard

import (
	"net/http"

	"github.com/clustermutex/unlocker/internal/dashboard/access"
)

// admit checks that the caller may do what it asks for, with one lock at least.
func (d *Dashboard) admit(c access.Caller, need access.Permission) error {
	if c.MaySome(need) {
		return nil
	}
	return d.refusal(c, need)
}

// admitFor checks that the caller may do it with the locks of this owner.
func (d *Dashboard) admitFor(c access.Caller, need access.Permission, owner string) error {
	switch {
	case c.MayFor(need, owner):
		return nil
	case c.MaySome(need):
		return &problem{Status: http.StatusForbidden, Code: "forbidden", Title: "Not permitted",
			Detail: c.Shown() + " has the permission " + string(need) + " for locks of other owners, not for this one."}
	}
	return d.refusal(c, need)
}

// refusal says why the caller may not.
func (d *Dashboard) refusal(c access.Caller, need access.Permission) error {
	switch {
	case c.Unnamed != "":
		return &problem{Status: http.StatusUnauthorized, Code: "unauthenticated", Title: "Sign in",
			Detail: "This dashboard wants to know who you are, and " + c.Unnamed + "."}
	case need == access.Backtrace && d.config.HideBacktraces && c.May(access.View):
		return &problem{Status: http.StatusForbidden, Code: "forbidden", Title: "No backtraces here",
			Detail: "Backtraces are switched off on this dashboard."}
	case !c.May(access.View):
		need = access.View
	}
	return &problem{Status: http.StatusForbidden, Code: "forbidden", Title: "Not permitted",
		Detail: "This needs the permission " + string(need) + ", which " + c.Shown() + " does not have."}
}

// noBacktraces says why the caller sees no backtraces of this owner; empty when it may.
func (d *Dashboard) noBacktraces(c access.Caller, owner string) string {
	switch {
	case c.MayFor(access.Backtrace, owner):
		return ""
	case d.config.HideBacktraces:
		return "Backtraces are switched off on this dashboard."
	case c.MaySome(access.Backtrace):
		return "You see backtraces of other owners only."
	}
	return "Backtraces need the permission backtrace."
}
