package dashboard

import (
	"net/http"

	"github.com/clustermutex/unlocker/internal/text"
)

// admit checks that the caller may do what it asks for, with one lock at least.
func (d *Dashboard) admit(c caller, need Permission) error {
	if c.maySome(need) {
		return nil
	}
	return d.refusal(c, need)
}

// admitFor checks that the caller may do it with the locks of this owner.
func (d *Dashboard) admitFor(c caller, need Permission, owner string) error {
	switch {
	case c.mayFor(need, owner):
		return nil
	case c.maySome(need):
		return &problem{Status: http.StatusForbidden, Code: "forbidden", Title: "Not permitted",
			Detail: c.shown() + " has the permission " + string(need) + " for locks of other owners, not for this one."}
	}
	return d.refusal(c, need)
}

// refusal says why the caller may not.
func (d *Dashboard) refusal(c caller, need Permission) error {
	switch {
	case c.why != "":
		return &problem{Status: http.StatusUnauthorized, Code: "unauthenticated", Title: "Sign in",
			Detail: "This dashboard wants to know who you are, and " + c.why + "."}
	case need == Backtrace && d.config.HideBacktraces && c.may(View):
		return &problem{Status: http.StatusForbidden, Code: "forbidden", Title: "No backtraces here",
			Detail: "Backtraces are switched off on this dashboard."}
	case !c.may(View):
		need = View
	}
	return &problem{Status: http.StatusForbidden, Code: "forbidden", Title: "Not permitted",
		Detail: "This needs the permission " + string(need) + ", which " + c.shown() + " does not have."}
}

// shown is the caller in a sentence.
func (c caller) shown() string {
	if c.name == "" {
		return "somebody without a name"
	}
	return text.Visible(c.name)
}

// noBacktraces says why the caller sees no backtraces of this owner; empty when it may.
func (d *Dashboard) noBacktraces(c caller, owner string) string {
	switch {
	case c.mayFor(Backtrace, owner):
		return ""
	case d.config.HideBacktraces:
		return "Backtraces are switched off on this dashboard."
	case c.maySome(Backtrace):
		return "You see backtraces of other owners only."
	}
	return "Backtraces need the permission backtrace."
}
