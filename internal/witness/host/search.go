package host

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// searchShare is how many times the duration of a search through all processes must pass before the next one, so that
// searching costs at most a twentieth of a processor.
const searchShare = 20

// searchPause is the pause after a failed search.
const searchPause = 5 * time.Second

// watchProcesses finds the processes that hold locks, and polls those for which the kernel provides no handle.
func (w *Witness) watchProcesses(ctx context.Context) {
	poll := time.NewTicker(w.pauses.poll)
	defer poll.Stop()
	for {
		next := w.searchDue(ctx)
		var later <-chan time.Time
		if !next.IsZero() {
			later = time.After(max(time.Until(next), time.Millisecond))
		}
		select {
		case <-ctx.Done():
			return
		case <-w.searchNow:
		case <-later:
		case <-poll.C:
			w.pollAll()
			w.forgetIdle()
		}
	}
}

// searchDue searches for the processes that are due, and returns when the next search is due; zero for none.
func (w *Witness) searchDue(ctx context.Context) (next time.Time) {
	began := time.Now()
	direct, nested := w.holdersToFind(began)
	for _, h := range direct {
		one, seen := w.processes.watch(h.pid, h, nil) // in the namespace of the witness
		var found []watcher
		if seen == present {
			found = append(found, one)
		}
		w.recordSearch(h, found, seen)
	}
	if len(nested) > 0 {
		found, seen, err := w.processes.search(nested)
		if err != nil {
			w.cfg.Log.Warn().Err(err).Msg("cannot search the processes of this machine; retrying")
			w.delayNestedSearch(began.Add(searchPause))
		}
		for h, s := range seen {
			w.recordSearch(h, found[h], s)
		}
		w.delayNestedSearch(time.Now().Add(searchShare * time.Since(began)))
	}
	w.searchCommands(ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.running {
		if (p.mustBeFound() || p.commandMayLive()) && (next.IsZero() || p.next.Before(next)) {
			next = p.next
		}
	}
	return next
}

// mustBeFound reports whether the process must be searched for: it holds locks, and nothing watches it yet.
func (p *process) mustBeFound() bool {
	return p.exit == nil && len(p.watchers) == 0 && len(p.locks) > 0 && !p.unseen
}

// holdersToFind returns the holders to search for now: those in the pid namespace of the witness, which are found by
// their ids, and those in other namespaces.
func (w *Witness) holdersToFind(now time.Time) (direct, nested []holder) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for h, p := range w.running {
		switch {
		case !p.mustBeFound() || p.next.After(now):
		case h.namespace == w.cfg.Machine.Namespace:
			direct = append(direct, h)
		default:
			nested = append(nested, h)
		}
	}
	return direct, nested
}

// delayNestedSearch delays the search of other pid namespaces.
func (w *Witness) delayNestedSearch(until time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for h, p := range w.running {
		if p.mustBeFound() && h.namespace != w.cfg.Machine.Namespace && p.next.Before(until) {
			p.next = until
		}
	}
}

// recordSearch stores the result of a search for a holder. Two consecutive searches without a result prove that the
// process is gone.
func (w *Witness) recordSearch(h holder, watchers []watcher, seen searchResult) {
	opened := w.openCommand(h, watchers)
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.running[h]
	if p == nil {
		(&process{watchers: watchers, opened: opened}).close()
		return
	}
	switch seen {
	case present:
		p.misses = 0
		p.watchers = watchers
		p.opened = opened
		for _, one := range watchers {
			if one.handle != nil {
				w.following.Go(func() {
					if one.handle.wait() == nil { // else it was closed: the end no longer matters
						w.recordExit(h, one)
					}
				})
			}
		}
	case absent:
		if p.misses++; p.misses > 1 {
			w.holderEnded(p, exit{})
			return
		}
		p.next = time.Now().Add(w.pauses.absent)
	case unseen:
		p.unseen = true
		w.warnUnseen.Do(func() {
			w.cfg.Log.Warn().Int64("pid", p.pid).Int64("pid_namespace", p.namespace).
				Int64("own_namespace", w.cfg.Machine.Namespace).
				Msg("cannot see a process of this machine that holds a lock, so cannot prove its end: run the " +
					"witness in the pid namespace of the machine; logged once, a metric counts such processes")
		})
	}
}

// recordExit notes that a watched process has ended. The holder has ended when its last watched process has.
func (w *Witness) recordExit(h holder, one watcher) {
	e := readExit(one, w.processes.proc, time.Now())
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.running[h]
	if p == nil || !slices.Contains(p.watchers, one) {
		return
	}
	p.watchers = slices.DeleteFunc(p.watchers, func(other watcher) bool { return other == one })
	one.close()
	if len(p.watchers) == 0 {
		w.holderEnded(p, e)
	}
}

// holderEnded notes that a holder's process has ended for certain. If it ran a command in a cgroup, the end is stated
// only once the command has ended, too. The caller holds mu.
func (w *Witness) holderEnded(p *process, e exit) {
	if p.cgroup == 0 || len(p.locks) == 0 {
		w.stateEnd(p, e)
		return
	}
	p.exit = &e
	p.next = time.Now()
	p.commandPause = w.pauses.command
	wake(w.searchNow)
}

// stateEnd prepares a proof for each lock of an ended process. The caller holds mu.
func (w *Witness) stateEnd(p *process, e exit) {
	delete(w.running, p.holder)
	p.close()
	for _, l := range p.locks {
		how := fmt.Sprintf("process %d on %s", p.pid, w.cfg.Machine.Hostname)
		if e.at.IsZero() {
			how += " is gone"
		} else {
			how += " ended"
		}
		l.statement = w.newStatement(l.hold, metadata.CauseProcessEnded, how)
		e.addTo(l.statement)
	}
	wake(w.publishNow)
}

// pollAll checks the processes for which the kernel provided no handle.
func (w *Witness) pollAll() {
	type one struct {
		holder
		watcher
	}
	var all []one
	w.mu.Lock()
	for h, p := range w.running {
		for _, watched := range p.watchers {
			if watched.handle == nil {
				all = append(all, one{h, watched})
			}
		}
	}
	w.mu.Unlock()
	for _, o := range all {
		if o.check(w.processes.proc) == absent {
			w.recordExit(o.holder, o.watcher)
		}
	}
}

// forgetIdle forgets processes that have held no lock for a while.
func (w *Witness) forgetIdle() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for h, p := range w.running {
		if len(p.locks) == 0 && time.Since(p.idle) >= w.pauses.idle {
			p.close()
			delete(w.running, h)
		}
	}
}

// holder identifies a process that holds locks.
type holder struct {
	boot                  string
	namespace, pid, start int64 // 0 for one of an earlier boot
	cgroup                int64 // where its command runs, which may outlive it; 0 for none
}

// hold is one acquisition of a lock by a process of this machine.
type hold struct {
	lock, uuid string
	token      int64
	holder     holder
}

// MayHold reports whether a process of this machine may hold the lock: its keys contain a boot id of this machine. It
// filters out most locks of a cluster cheaply.
func (m Machine) MayHold(fields []metadata.Field) bool {
	return slices.ContainsFunc(fields, func(f metadata.Field) bool {
		if f.Name != lockrecord.FieldMetadata && f.Name != lockrecord.FieldBootID {
			return false
		}
		value := []byte(f.Value)
		return bytes.Contains(value, []byte(m.BootID)) ||
			slices.ContainsFunc(m.Earlier, func(boot string) bool { return bytes.Contains(value, []byte(boot)) })
	})
}

// hold returns the hold of a record, if its holder's process is or was on this machine and can be distinguished from
// all others.
func (m Machine) hold(r *metadata.Record) (hold, bool) {
	p := r.Process
	if p == nil || p.Detached || r.Token == 0 || !metadata.IsUUID(r.UUID) {
		return hold{}, false
	}
	h := hold{lock: r.Name, uuid: r.UUID, token: r.Token, holder: holder{boot: p.BootID}}
	if slices.Contains(m.Earlier, p.BootID) {
		return h, true
	}
	h.holder.namespace = p.PIDNamespace
	h.holder.pid = r.PID
	h.holder.start = p.Start
	h.holder.cgroup = p.CgroupID
	if p.CgroupID != 0 {
		h.holder.start = p.SupervisorStart
	}
	return h, p.BootID == m.BootID && h.holder.start > 0 && p.PIDNamespace > 0 && r.PID > 0 && !hasUnreadableCgroup(r)
}

// hasUnreadableCgroup reports whether the record names a cgroup in an unreadable form.
func hasUnreadableCgroup(r *metadata.Record) bool {
	return r.Process.CgroupID < 0 || slices.ContainsFunc(r.Problems, func(p metadata.Problem) bool {
		return p.Field == lockrecord.FieldCgroupID && p.Kind != metadata.ProblemLeftover
	})
}
