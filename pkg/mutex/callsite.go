package mutex

import (
	"runtime"
	"strings"
	"sync"
)

// callSite is the line of code that took a lock. It is kept in its cheapest form, and formatted on demand.
type callSite struct {
	trace string // the backtrace of the record
	pcs   [ownFrames + 2]uintptr
	n     int
}

// callSiteOf is the line that calls this package, by the backtrace where there is one.
func callSiteOf(backtrace string) callSite {
	p := callSite{trace: backtrace}
	if backtrace == "" {
		p.n = runtime.Callers(2, p.pcs[:])
	}
	return p
}

// String is "file:line".
func (p *callSite) String() string {
	trace := p.trace
	if trace == "" {
		trace = frames(p.pcs[:p.n], 1)
	}
	at, _, _ := strings.Cut(strings.TrimSuffix(trace, "\n"), " in ")
	if at == "" {
		return "an unknown place"
	}
	return at
}

// holds are the handles of a client by the uuids of their holds.
type holds struct {
	mu  sync.Mutex
	all map[string]*Lock
}

func (h *holds) add(l *Lock) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.all == nil {
		h.all = map[string]*Lock{}
	}
	h.all[l.held.UUID] = l
}

func (h *holds) remove(l *Lock) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.all[l.held.UUID] == l {
		delete(h.all, l.held.UUID)
	}
}

// where is the line of code that took the hold with this uuid; empty unless this client has a handle of it.
func (h *holds) where(uuid string) string {
	h.mu.Lock()
	l := h.all[uuid]
	h.mu.Unlock()
	if l == nil {
		return ""
	}
	return l.site.String()
}
