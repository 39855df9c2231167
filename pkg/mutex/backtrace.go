package mutex

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
)

// ownModule is the path of this module in build information and stack frames.
const ownModule = "github.com/clustermutex/unlocker"

// isOwn reports whether the function belongs to this package or to jobs, not to their caller.
func isOwn(function string) bool {
	return strings.HasPrefix(function, ownModule+"/pkg/mutex.") || strings.HasPrefix(function, ownModule+"/pkg/jobs.")
}

// ownFrames is the most that these packages add to a stack above their caller.
const ownFrames = 8

// callers returns the call stack of the caller of these packages, newest frame first, one frame a line: "file:line in
// function".
func callers(depth int) string {
	if depth == 0 {
		return ""
	}
	pcs := make([]uintptr, depth+ownFrames)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs)])
	var b strings.Builder
	for n, more := 0, true; more && n < depth; {
		var f runtime.Frame
		f, more = frames.Next()
		if n == 0 && isOwn(f.Function) || f.Function == "runtime.goexit" {
			continue
		}
		fmt.Fprintf(&b, "%s:%d in %s\n", f.File, f.Line, f.Function)
		n++
	}
	return b.String()
}

// library returns the client member of the records: the name of this library and, if the build has it, its version.
func library() string {
	const name = "unlocker-go"
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return name
	}
	for _, m := range append(info.Deps, &info.Main) {
		if m.Path == ownModule && m.Version != "" {
			return name + " " + m.Version
		}
	}
	return name
}

// callSiteOf returns the line that called these packages, as "file:line". It is the first line of the backtrace if
// there is one.
func callSiteOf(backtrace string) string {
	if backtrace == "" {
		backtrace = callers(1)
	}
	site, _, _ := strings.Cut(backtrace, " in ")
	return cmp.Or(site, "an unknown line")
}

// callSiteOfHold returns the line that took the hold with this uuid; empty unless this client has a handle of it.
func (c *Client) callSiteOfHold(uuid string) string {
	if l, ok := c.holds.Load(uuid); ok {
		return l.(*Lock).callSite
	}
	return ""
}
