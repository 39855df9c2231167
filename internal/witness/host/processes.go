package host

import (
	"errors"
	"time"

	"github.com/clustermutex/unlocker/pkg/metadata"
)

type searchResult int

const (
	unseen  searchResult = iota // it may exist, but is invisible to the witness
	absent                      // it does not exist, for certain
	present                     // it runs, and is watched
)

type processes struct {
	proc    proc
	seesAll bool // the witness sees the processes of all pid namespaces
	open    func(pid int64) (*handle, error)
}

// watcher notices the end of one process.
type watcher struct {
	pid    int64 // in the namespace of the witness
	start  int64
	handle *handle // nil if the kernel provided none: then the process is polled
}

// watch opens the process with this id, and verifies by its start time and the optional check that it is that of h.
func (p processes) watch(pid int64, h holder, check func() bool) (watcher, searchResult) {
	w := watcher{pid: pid, start: h.start}
	handle, err := p.open(pid)
	switch {
	case isGone(err):
		return w, absent
	case err == nil:
		w.handle = handle
	}
	// If the process of h exists now, the handle that was opened before refers to it.
	s := w.check(p.proc)
	if s == present && check != nil && !check() {
		s = absent
	}
	if s != present {
		w.close()
	}
	return w, s
}

// check reports whether the process still runs.
func (w watcher) check(p proc) searchResult {
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

// ended reports whether the process has ended for certain, without reading /proc.
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

// exit returns the wait status of an ended process, if it is known. Until the process is reaped, its owner and root can
// read it in /proc; afterwards the handle has it.
func (w watcher) exit(p proc) (status int64, known bool) {
	if s, err := p.stat(w.pid); err == nil && s.Start == w.start && s.ExitCode != 0 {
		return s.ExitCode, true
	}
	if w.handle == nil {
		return 0, false
	}
	return w.handle.exit()
}

// search finds the processes of several holders in all pid namespaces that the witness sees. If the namespace of a
// process is unreadable, several processes may match; the holder has ended once all of them have. That is certain only
// if the witness sees all namespaces.
func (p processes) search(holders []holder) (map[holder][]watcher, map[holder]searchResult, error) {
	if err := p.proc.checkVisible(); err != nil {
		return nil, nil, err
	}
	began, err := p.proc.byStartTime()
	if err != nil {
		return nil, nil, err
	}
	found := map[holder][]watcher{}
	seen := map[holder]searchResult{}
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

// searchOne finds one holder among the processes with its start time. If one of them is unreadable, nothing is proven.
func (p processes) searchOne(h holder, candidates []int64) (found []watcher, seen searchResult, err error) {
	is := func(pid int64) bool {
		may, certain, failed := p.proc.isHolder(pid, h)
		err = errors.Join(err, failed)
		return may && (certain || p.seesAll)
	}
	if p.seesAll {
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

// exit describes the end of a holder's process.
type exit struct {
	at     time.Time // zero if the end was not observed
	signal string
	code   *int
}

func (e exit) addTo(s *metadata.Statement) {
	s.EndedAt = metadata.Time{Time: e.at}
	s.ExitCode = e.code
	s.Signal = e.signal
}

func readExit(w watcher, p proc, at time.Time) exit {
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
