package host

import (
	"errors"
	"time"
)

// sight is what a look for a process found.
type sight int

const (
	unseen  sight = iota // nothing that proves anything
	absent               // it is certainly not there
	present              // it lives, and the watchers know when it ends
)

// processes looks for processes of this machine.
type processes struct {
	proc proc
	all  bool // it contains all others
	open func(pid int64) (*handle, error)
}

// watcher knows when one process ends.
type watcher struct {
	pid    int64 // in the namespace of the witness
	start  int64
	handle *handle // nil where the kernel gave none: then somebody has to look again and again
}

// direct looks for the process of h in the namespace of the witness.
func (p processes) direct(h holder) (watcher, sight) { return p.watch(h.pid, h, nil) }

// watch opens the process with this id and makes sure that it is the one of h. Another check may be necessary for that.
func (p processes) watch(pid int64, h holder, check func() bool) (watcher, sight) {
	w := watcher{pid: pid, start: h.start}
	handle, err := p.open(pid)
	switch {
	case isGone(err):
		return w, absent
	case err == nil:
		w.handle = handle
	}
	// The process of h had begun before. If it is there now, the handle, which is older, is one of it.
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
	return unseen // somebody hides it
}

// ended reports whether the process has certainly ended, without a look at /proc.
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

// exit is the wait status of a process that ended, if it can be known.
func (w watcher) exit(p proc) (status int64, known bool) {
	if w.handle != nil {
		if status, known = w.handle.exit(); known {
			return status, true
		}
	}
	s, err := p.stat(w.pid) // as long as nobody has reaped it; others than its owner and root read 0
	if err != nil || s.Start != w.start || s.ExitCode == 0 {
		return 0, false
	}
	return s.ExitCode, true
}

// search looks for the processes of several holders in all namespaces that the witness sees. If it may not read the
// namespace of a process, several may be the one: then the holder has ended when all of them have. That is certain only
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

// searchOne looks for one holder among the processes that began when it did. What cannot be read of one of them proves
// nothing.
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

// exit is how a holder ended whose last watcher this is.
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
