package host

import (
	"context"
	"slices"
	"time"

	"github.com/clustermutex/unlocker/pkg/metadata"
)

// follow keeps the locks of this machine in line with the view.
func (w *Witness) follow(ctx context.Context) {
	away := true
	for ctx.Err() == nil {
		changed := w.cfg.Changed()
		first, cause := w.cfg.Fresh()
		if first != 0 {
			w.compare(first, w.cfg.Locks())
		}
		if away && cause == "" {
			w.mayState(w.cfg.Prove(ctx))
			wake(w.publish)
		}
		away = cause != ""
		select {
		case <-ctx.Done():
		case <-changed:
		}
	}
}

// compare takes over the current locks; first is the revision of the first list of them.
func (w *Witness) compare(first int64, records []*metadata.Record) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range records {
		h, ok := w.cfg.Machine.hold(r)
		written := h.token > first || r.Seen.Arrived != 0 // since this machine booted
		if ok && written && h.holder.boot != w.cfg.Machine.BootID {
			w.duplicate(h)
		}
	}
	known := map[string]bool{}
	for _, r := range records {
		if h, ok := w.cfg.Machine.hold(r); ok {
			known[h.lock] = true
			w.update(h, r.Death != nil)
		}
	}
	for lock := range w.locks {
		if !known[lock] {
			w.gone(lock)
		}
	}
}

// update takes over the current state of a hold, and whether etcd has a statement about it. The caller holds mu.
func (w *Witness) update(h hold, stated bool) {
	old := w.locks[h.lock]
	switch {
	case old == nil || old.uuid != h.uuid || old.token != h.token:
		w.gone(h.lock)
		w.came(h)
	case old.holder != h.holder: // the record was overwritten: it is unknown which process holds the lock
		w.gone(h.lock)
		w.locks[h.lock] = &held{hold: h}
	case old.shown && !stated: // it was deleted, or expired
		old.published = false
		wake(w.publish)
	}
	w.locks[h.lock].shown = stated
}

// mayState records whether etcd accepts statements; err is nil if it does.
func (w *Witness) mayState(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		w.fails(&w.mute, "nothing can be stated", err)
		return
	}
	w.mute = ""
}

// fails records a trouble, and logs it if it is new. The caller holds mu.
func (w *Witness) fails(trouble *string, what string, err error) {
	sentence := what + ": " + w.cfg.Explain(err)
	if *trouble != sentence {
		w.cfg.Log.Warn().Err(err).Msg(sentence)
	}
	*trouble = sentence
}

// duplicate notices that an earlier boot of this machine is not over, so that it was another machine's: nothing is
// stated about that boot any more. The caller holds mu.
func (w *Witness) duplicate(h hold) {
	w.cfg.Machine.Earlier = slices.DeleteFunc(slices.Clone(w.cfg.Machine.Earlier),
		func(boot string) bool { return boot == h.holder.boot })
	w.cfg.Log.Error().Str("lock", h.lock).Str("boot_id", h.holder.boot).
		Msg("a lock was taken under a boot id that this machine had before its last reboot: another machine has a " +
			"copy of the state directory, so reboots no longer prove anything about that boot")
}

// came adds a hold. The caller holds mu.
func (w *Witness) came(h hold) {
	l := &held{hold: h}
	w.locks[h.lock] = l
	if h.holder.boot != w.cfg.Machine.BootID {
		l.statement = w.rebooted(h)
		wake(w.publish)
		return
	}
	p := w.running[h.holder]
	if p == nil {
		p = &process{holder: h.holder, locks: map[string]*held{}}
		w.running[h.holder] = p
	}
	p.locks[h.lock] = l
	p.idle = time.Time{}
	if p.wanted() {
		wake(w.find)
	}
}

// gone drops the hold of a lock, if there is one. The caller holds mu.
func (w *Witness) gone(lock string) {
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

// rebooted returns the statement that the holder ended with an earlier boot of this machine.
func (w *Witness) rebooted(h hold) *metadata.Statement {
	s := w.statement(h, metadata.CauseRebooted, "the machine "+w.cfg.Machine.Hostname+" has booted since")
	return &s
}

func (w *Witness) statement(h hold, cause, how string) metadata.Statement {
	return metadata.Statement{Lock: h.lock, UUID: h.uuid, Token: h.token, Cause: cause, How: how, Witness: "host",
		By: w.cfg.ID, At: metadata.Time{Time: w.cfg.Now()}}
}
