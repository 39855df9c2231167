package host

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/clustermutex/unlocker/pkg/metadata"
)

// searchShare is how many times the duration of a search through all processes must pass before the next one, so that
// searching costs at most a twentieth of a processor.
const searchShare = 20

// searchPause is the pause after a search that failed.
const searchPause = 5 * time.Second

// look finds the processes that hold locks, and polls those for which the kernel gives no handle.
func (w *Witness) look(ctx context.Context) {
	poll := time.NewTicker(w.pauses.poll)
	defer poll.Stop()
	for {
		next := w.lookForAll(ctx)
		var later <-chan time.Time
		if !next.IsZero() {
			later = time.After(max(time.Until(next), time.Millisecond))
		}
		select {
		case <-ctx.Done():
			return
		case <-w.find:
		case <-later:
		case <-poll.C:
			w.pollAll()
			w.forgetIdle()
			w.missing()
		}
	}
}

// lookForAll looks for the processes that are due, and returns when the next one is; zero for none.
func (w *Witness) lookForAll(ctx context.Context) (next time.Time) {
	began := time.Now()
	direct, nested := w.wanted(began)
	for _, h := range direct {
		one, seen := w.processes.watch(h.pid, h, nil) // in the namespace of the witness
		if seen == present {
			w.found(h, []watcher{one}, seen)
		} else {
			w.found(h, nil, seen)
		}
	}
	if len(nested) > 0 {
		found, seen, err := w.processes.search(nested)
		if err != nil {
			w.cfg.Log.Warn().Err(err).Msg("the processes of this machine cannot be searched: this is tried again")
			w.postpone(began.Add(searchPause))
		}
		for h, s := range seen {
			w.found(h, found[h], s)
		}
		w.postpone(time.Now().Add(searchShare * time.Since(began)))
	}
	w.lookForCommands(ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.running {
		if (p.wanted() || p.outlived()) && (next.IsZero() || p.next.Before(next)) {
			next = p.next
		}
	}
	return next
}

// wanted reports whether the process still has to be found.
func (p *process) wanted() bool {
	return p.over == nil && len(p.watchers) == 0 && len(p.locks) > 0 && !p.unseen
}

// wanted returns the holders to look for now: by their ids in the namespace of the witness, and in all others.
func (w *Witness) wanted(now time.Time) (direct, nested []holder) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for h, p := range w.running {
		switch {
		case !p.wanted() || p.next.After(now):
		case h.namespace == w.cfg.Machine.Namespace:
			direct = append(direct, h)
		default:
			nested = append(nested, h)
		}
	}
	return direct, nested
}

// postpone delays the search of the other namespaces until then.
func (w *Witness) postpone(until time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for h, p := range w.running {
		if p.wanted() && h.namespace != w.cfg.Machine.Namespace && p.next.Before(until) {
			p.next = until
		}
	}
}

// found records the result of a look for a holder. A process counts as absent only after two looks.
func (w *Witness) found(h holder, watchers []watcher, seen sight) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.running[h]
	if p == nil {
		closeAll(watchers)
		return
	}
	switch seen {
	case present:
		p.looks = 0
		p.watchers = watchers
		for _, one := range watchers {
			if one.handle != nil {
				w.following.Go(func() { w.await(h, one) })
			}
		}
	case absent:
		if p.looks++; p.looks > 1 {
			w.ended(p, exit{})
			return
		}
		p.next = time.Now().Add(w.pauses.again)
	case unseen:
		p.unseen = true
		w.cannotSee(p)
	}
}

// cannotSee logs once that a holder's process cannot be seen. The caller holds mu.
func (w *Witness) cannotSee(p *process) {
	if w.warned {
		return
	}
	w.warned = true
	w.cfg.Log.Warn().Int64("pid", p.pid).Int64("pid_namespace", p.namespace).
		Int64("own_namespace", w.cfg.Machine.Namespace).
		Msg("a process of this machine that holds a lock cannot be seen from here, and its end cannot be proven: run " +
			"the witness in the pid namespace of the machine; this is said once, a metric counts them")
}

// await waits for the end of one process.
func (w *Witness) await(h holder, one watcher) {
	if one.handle.wait() != nil {
		return // closed: the end no longer matters
	}
	w.over(h, one, w.cfg.Now())
}

// over records the end of one process.
func (w *Witness) over(h holder, one watcher, at time.Time) {
	e := exitOf(one, w.processes.proc, at)
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.running[h]
	if p == nil || !slices.Contains(p.watchers, one) {
		return
	}
	p.watchers = slices.DeleteFunc(p.watchers, func(other watcher) bool { return other == one })
	one.close()
	if len(p.watchers) == 0 {
		w.ended(p, e)
	}
}

// ended records that a process has certainly ended. From now on it can start no command. The caller holds mu.
func (w *Witness) ended(p *process, e exit) {
	if p.cgroup == 0 || len(p.locks) == 0 {
		w.conclude(p, e)
		return
	}
	p.over = &e
	p.next = time.Now()
	p.pause = w.pauses.soon
	wake(w.find)
}

// conclude states the end of a process for all of its locks. The caller holds mu.
func (w *Witness) conclude(p *process, e exit) {
	delete(w.running, p.holder)
	for _, l := range p.locks {
		how := fmt.Sprintf("process %d on %s", p.pid, w.cfg.Machine.Hostname)
		if e.at.IsZero() {
			how += " is gone"
		} else {
			how += " ended"
		}
		s := w.statement(l.hold, metadata.CauseProcessEnded, how)
		s.EndedAt = metadata.Time{Time: e.at}
		s.ExitCode = e.code
		s.Signal = e.signal
		l.statement = &s
	}
	wake(w.publish)
}

// pollAll looks at the processes for which the kernel gave no handle.
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
		if o.look(w.processes.proc) == absent {
			w.over(o.holder, o.watcher, w.cfg.Now())
		}
	}
}

// forgetIdle forgets processes that have held no lock for a while.
func (w *Witness) forgetIdle() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for h, p := range w.running {
		if len(p.locks) == 0 && time.Since(p.idle) >= w.pauses.idle {
			closeAll(p.watchers)
			delete(w.running, h)
		}
	}
}

// holder is a process that holds locks.
type holder struct {
	boot                  string
	namespace, pid, start int64 // 0 for one of an earlier boot
	cgroup                int64 // where its command runs, which may outlive it; 0 for none
}

// hold is a lock that a process of this machine holds.
type hold struct {
	lock, uuid string
	token      int64
	holder     holder
}

// Concerns reports whether the keys of a lock may name a boot of this machine. Few locks of a cluster do.
func (m Machine) Concerns(fields []metadata.Field) bool {
	return slices.ContainsFunc(fields, func(f metadata.Field) bool {
		if f.Name != metadata.FieldMetadata && f.Name != metadata.FieldBootID {
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
	return h, p.BootID == m.BootID && p.Start > 0 && p.PIDNamespace > 0 && r.PID > 0 && !unreadable(r)
}

// unreadable reports whether the record has a cgroup, but one that cannot be read.
func unreadable(r *metadata.Record) bool {
	return r.Process.CgroupID < 0 || slices.ContainsFunc(r.Problems, func(p metadata.Problem) bool {
		return p.Field == metadata.FieldCgroupID && p.Reason != metadata.ReasonLeftover
	})
}
