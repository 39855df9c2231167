package host

import (
	"context"
	"slices"
	"time"

	"github.com/clustermutex/unlocker/pkg/metadata"
)

// follow keeps the holds of this machine up to date with the view.
func (w *Witness) follow(ctx context.Context) {
	stale := true
	for ctx.Err() == nil {
		changed := w.cfg.Changed()
		first, cause := w.cfg.Freshness()
		if first != 0 {
			w.syncHolds(first, w.cfg.Locks())
		}
		if stale && cause == "" {
			w.recordWritable(w.cfg.CheckWritable(ctx))
			wake(w.publishNow)
		}
		stale = cause != ""
		select {
		case <-ctx.Done():
		case <-changed:
		}
	}
}

// syncHolds replaces the known holds by those of these records. first is the revision of the first list of locks.
func (w *Witness) syncHolds(first int64, records []*metadata.Record) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range records {
		h, ok := w.cfg.Machine.hold(r)
		written := h.token > first || r.Seen.Arrived != 0 // since this machine booted
		if ok && written && h.holder.boot != w.cfg.Machine.BootID {
			w.distrustBoot(h)
		}
	}
	known := map[string]bool{}
	for _, r := range records {
		if h, ok := w.cfg.Machine.hold(r); ok {
			known[h.lock] = true
			w.updateHold(h, r.Death != nil)
		}
	}
	for lock := range w.locks {
		if !known[lock] {
			w.dropHold(lock)
		}
	}
}

// updateHold stores the current state of a hold, and whether the view has a proof about it. The caller holds mu.
func (w *Witness) updateHold(h hold, hasProof bool) {
	old := w.locks[h.lock]
	switch {
	case old == nil || old.uuid != h.uuid || old.token != h.token:
		w.dropHold(h.lock)
		w.addHold(h)
	case old.holder != h.holder: // the record was overwritten: it is unknown which process holds the lock
		w.dropHold(h.lock)
		w.locks[h.lock] = &held{hold: h}
	}
	w.locks[h.lock].inView = hasProof
}

// recordWritable records whether etcd accepts statements; err is nil if it does.
func (w *Witness) recordWritable(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		w.recordProblem("etcd does not accept statements", err)
		return
	}
	w.writeProblem = ""
}

// recordProblem stores why etcd does not accept statements, and logs it if it is new. The caller holds mu.
func (w *Witness) recordProblem(what string, err error) {
	sentence := what + ": " + w.cfg.Explain(err)
	if w.writeProblem != sentence {
		w.cfg.Log.Warn().Err(err).Msg(sentence)
	}
	w.writeProblem = sentence
}

// distrustBoot removes a boot id from the earlier boots of this machine, because a lock was just taken under it: it is
// another machine's, and a reboot of this one proves nothing about it. The caller holds mu.
func (w *Witness) distrustBoot(h hold) {
	w.cfg.Machine.Earlier = slices.DeleteFunc(slices.Clone(w.cfg.Machine.Earlier),
		func(boot string) bool { return boot == h.holder.boot })
	w.cfg.Log.Error().Str("lock", h.lock).Str("boot_id", h.holder.boot).
		Msg("a lock was taken under a boot id that this machine had before its last reboot: another machine has a " +
			"copy of the state directory, so reboots no longer prove anything about that boot")
}

// addHold adds a hold, and has its process searched for. The caller holds mu.
func (w *Witness) addHold(h hold) {
	l := &held{hold: h}
	w.locks[h.lock] = l
	if h.holder.boot != w.cfg.Machine.BootID {
		l.statement = w.newStatement(h, metadata.CauseRebooted,
			"the machine "+w.cfg.Machine.Hostname+" has booted since")
		wake(w.publishNow)
		return
	}
	p := w.running[h.holder]
	if p == nil {
		p = &process{holder: h.holder, locks: map[string]*held{}}
		w.running[h.holder] = p
	}
	p.locks[h.lock] = l
	p.idle = time.Time{}
	if p.mustBeFound() {
		wake(w.searchNow)
	}
}

// dropHold forgets the hold of a lock, if there is one. The caller holds mu.
func (w *Witness) dropHold(lock string) {
	l := w.locks[lock]
	if l == nil {
		return
	}
	delete(w.locks, lock)
	if p := w.running[l.holder]; p != nil {
		delete(p.locks, lock)
		if len(p.locks) == 0 {
			p.idle = time.Now()
		}
	}
}

func (w *Witness) newStatement(h hold, cause, how string) *metadata.Statement {
	return &metadata.Statement{Name: h.lock, UUID: h.uuid, Token: h.token, Cause: cause, Reason: how, Witness: "host",
		By: w.cfg.ID, At: metadata.Time{Time: time.Now()}}
}
