package host

import (
	"errors"
	"time"
)

// sight is the result of a look for a process.
type sight int

const (
	unseen  sight = iota // nothing is proven
	absent               // it certainly does not exist
	present              // it lives, and the watchers notice its end
)

// processes looks for processes of this machine.
type processes struct {
	proc proc
	all  bool // it contains all others
	open func(pid int64) (*handle, error)
}

// watcher notices the end of one process.
type watcher struct {
	pid    int64 // in the namespace of the witness
	start  int64
	handle *handle // nil if the kernel gave none: then the process is polled
}

// watch opens the process with this id and verifies that it is the process of h, if need be with another check.
func (p processes) watch(pid int64, h holder, check func() bool) (watcher, sight) {
	w := watcher{pid: pid, start: h.start}
	handle, err := p.open(pid)
	switch {
	case isGone(err):
		return w, absent
	case err == nil:
		w.handle = handle
	}
	// The process of h had started before. If it exists now, the older handle refers to it.
	s := w.look(p.proc)
	if s == present && check != nil && !check() {
		s = absent
	}
	if s != present {
		w.close()
	}
	return w, s
}

// look reports whether the process lives.
func (w watcher) look(p proc) sight {
	if w.ended() {
		return absent
	}
	switch s, err := p.stat(w.pid); {
	case err == nil && (s.Start != w.start || s.Ended()):
		return absent
	case err == nil:
		return present
	case w.ended(): // since then
		return absent
	}
	return unseen // it is hidden
}

// ended reports whether the process has certainly ended, without reading /proc.
func (w watcher) ended() bool {
	if w.handle != nil {
		return w.handle.ended()
	}
	return !exists(w.pid)
}

func (w watcher) close() {
	if w.handle != nil {
		w.handle.close()
	}
}

// exit returns the wait status of a process that ended, if it is known: /proc shows it until the process is reaped, to
// its owner and root, and from then on the handle has it.
func (w watcher) exit(p proc) (status int64, known bool) {
	if s, err := p.stat(w.pid); err == nil && s.Start == w.start && s.ExitCode != 0 {
		return s.ExitCode, true
	}
	if w.handle == nil {
		return 0, false
	}
	return w.handle.exit()
}

// search looks for the processes of several holders in all namespaces that the witness sees. If it may not read the
// namespace of a process, several processes may match: the holder has ended when all of them have. That is certain only
// if the witness sees all namespaces.
func (p processes) search(holders []holder) (map[holder][]watcher, map[holder]sight, error) {
	if err := p.proc.hides(); err != nil {
		return nil, nil, err
	}
	began, err := p.proc.began()
	if err != nil {
		return nil, nil, err
	}
	found := map[holder][]watcher{}
	seen := map[holder]sight{}
	for _, h := range holders {
		if found[h], seen[h], err = p.searchOne(h, began[h.start]); err != nil {
			for _, watchers := range found {
				closeAll(watchers)
			}
			return nil, nil, err
		}
	}
	return found, seen, nil
}

// searchOne looks for one holder among the processes with its start time. Unreadable ones prove nothing.
func (p processes) searchOne(h holder, candidates []int64) (found []watcher, seen sight, err error) {
	is := func(pid int64) bool {
		may, certain, failed := p.proc.isHolder(pid, h)
		err = errors.Join(err, failed)
		return may && (certain || p.all)
	}
	if p.all {
		seen = absent
	}
	for _, pid := range candidates {
		if !is(pid) {
			continue
		}
		w, s := p.watch(pid, h, func() bool { return is(pid) })
		switch s {
		case present:
			found = append(found, w)
		case unseen:
			closeAll(found)
			return nil, unseen, nil
		}
	}
	if err != nil {
		closeAll(found)
		return nil, unseen, err
	}
	if len(found) > 0 {
		seen = present
	}
	return found, seen, nil
}

func closeAll(watchers []watcher) {
	for _, w := range watchers {
		w.close()
	}
}

// exit is how a holder ended, as its last watcher saw it.
type exit struct {
	at     time.Time // zero if nobody saw it
	signal string
	code   *int
}

func exitOf(w watcher, p proc, at time.Time) exit {
	e := exit{at: at}
	if status, known := w.exit(p); known {
		signal, code := outcome(status)
		e.signal = signal
		if signal == "" {
			e.code = &code
		}
	}
	return e
}
