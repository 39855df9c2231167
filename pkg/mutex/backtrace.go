package mutex

import (
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
)

// ownModule is the path of this module in build information and stack frames.
const ownModule = "github.com/clustermutex/unlocker"

// isOwn reports whether the function belongs to this package or to jobs, not to their caller.
func isOwn(function string) bool {
	room, ok := strings.CutPrefix(function, ownModule+"/pkg/")
	return ok && (strings.HasPrefix(room, "mutex.") || strings.HasPrefix(room, "jobs."))
}

// ownFrames is the most that these packages add to a stack above their caller.
const ownFrames = 8

// stack has the program counters of a call stack of the usual depth. Unused ones are 0.
type stack [DefaultBacktraceDepth + ownFrames]uintptr

// traces formats call stacks and caches the text: a program takes its locks at few call sites, again and again, and
// naming the frames costs several times what finding them does.
type traces struct {
	mu    sync.Mutex
	known map[stack]string
}

// maxTraces bounds the memory of a program with many call sites.
const maxTraces = 256

// take returns the call stack of the caller of this package, newest frame first, one frame a line: "file:line in
// function".
func (t *traces) take(depth int) string {
	switch {
	case depth == 0:
		return ""
	case depth != DefaultBacktraceDepth:
		pcs := make([]uintptr, depth+ownFrames)
		return frames(pcs[:runtime.Callers(2, pcs)], depth)
	}
	var pcs stack
	n := runtime.Callers(2, pcs[:])
	t.mu.Lock()
	defer t.mu.Unlock()
	text, ok := t.known[pcs]
	if !ok {
		text = frames(pcs[:n], depth)
		if t.known == nil || len(t.known) >= maxTraces {
			t.known = map[stack]string{}
		}
		t.known[pcs] = text
	}
	return text
}

func frames(pcs []uintptr, depth int) string {
	var b strings.Builder
	more := len(pcs) > 0
	for all, n := runtime.CallersFrames(pcs), 0; more && n < depth; {
		var f runtime.Frame
		f, more = all.Next()
		if n == 0 && isOwn(f.Function) || f.Function == "runtime.goexit" {
			continue
		}
		b.WriteString(f.File)
		b.WriteByte(':')
		b.WriteString(strconv.Itoa(f.Line))
		b.WriteString(" in ")
		b.WriteString(f.Function)
		b.WriteByte('\n')
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

// callSite is the line of code that took a lock. It is kept in its cheapest form and formatted on demand.
type callSite struct {
	trace string // the backtrace of the record
	pcs   [ownFrames + 2]uintptr
	n     int
}

// callSiteOf returns the line that called this package, which is the first line of the backtrace if there is one.
func callSiteOf(backtrace string) callSite {
	p := callSite{trace: backtrace}
	if backtrace == "" {
		p.n = runtime.Callers(2, p.pcs[:])
	}
	return p
}

// String returns "file:line".
func (p *callSite) String() string {
	trace := p.trace
	if trace == "" {
		trace = frames(p.pcs[:p.n], 1)
	}
	at, _, _ := strings.Cut(strings.TrimSuffix(trace, "\n"), " in ")
	if at == "" {
		return "an unknown line"
	}
	return at
}

// holds has the call sites that took the holds of a client, by uuid.
type holds struct {
	mu  sync.Mutex
	all map[string]*callSite
}

func (h *holds) add(uuid string, site *callSite) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.all == nil {
		h.all = map[string]*callSite{}
	}
	h.all[uuid] = site
}

func (h *holds) remove(uuid string, site *callSite) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.all[uuid] == site { // else another handle adopted the hold
		delete(h.all, uuid)
	}
}

// where returns the line of code that took the hold with this uuid; empty unless this client has a handle of it.
func (h *holds) where(uuid string) string {
	h.mu.Lock()
	site := h.all[uuid]
	h.mu.Unlock()
	if site == nil {
		return ""
	}
	return site.String()
}
