package dashboard

import "net/http"

// admit checks that the caller may do what it asks for.
func (d *Dashboard) admit(c caller, need Permission) error {
	switch {
	case c.may(need):
		return nil
	case c.why != "":
		return &problem{Status: http.StatusUnauthorized, Code: "unauthenticated", Title: "Sign in",
			Detail: "This dashboard wants to know who you are, and " + c.why + "."}
	case need == Backtrace && d.config.HideBacktraces && c.may(View):
		return &problem{Status: http.StatusForbidden, Code: "forbidden", Title: "No backtraces here", Detail: d.noBacktraces(c)}
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
	return plain(c.name)
}

// noBacktraces says why the caller sees no backtraces; empty when it may.
func (d *Dashboard) noBacktraces(c caller) string {
	switch {
	case c.may(Backtrace):
		return ""
	case d.config.HideBacktraces:
		return "Backtraces are switched off on this dashboard."
	}
	return "Backtraces need the permission backtrace."
}
