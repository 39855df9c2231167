package host

import (
	"context"
	"slices"
	"time"

	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

const (
	firstPause = 100 * time.Millisecond // before the locks are listed again
	lastPause  = 5 * time.Second
	longWatch  = 5 * time.Second // a watch that lived for so long is no failure
)

// follow keeps the locks of this machine as etcd has them.
func (w *Witness) follow(ctx context.Context) {
	again := firstPause
	for ctx.Err() == nil {
		revision, err := w.list(ctx)
		if err == nil {
			began := time.Now()
			err = w.cfg.Watch(ctx, revision, w.apply)
			if time.Since(began) >= longWatch {
				again = firstPause
			}
		}
		if ctx.Err() != nil {
			return
		}
		w.interrupted(err)
		pause(ctx, again)
		again = min(2*again, lastPause)
	}
}

// list replaces what is known by what etcd has.
func (w *Witness) list(ctx context.Context) (int64, error) {
	var holds []hold
	locks := protocol.Gatherer{Each: func(lock string, fields []metadata.Field, _ []string) {
		if h, ok := w.records.hold(lock, fields); ok {
			holds = append(holds, h)
		}
	}}
	revision, err := w.cfg.List(ctx, func(kv protocol.KV) { locks.Take(w.cfg.Layout.Parse(kv.Key), kv) })
	if err != nil {
		return 0, err
	}
	locks.Flush()
	denied := w.cfg.Prove(ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.firstList == 0 {
		w.firstList = revision
	}
	for _, h := range holds {
		if h.token > w.firstList && h.holder.boot != w.cfg.Machine.BootID && w.records.ours(h.holder.boot) {
			w.twin(h) // it was taken while nobody watched, and yet since this machine booted
		}
	}
	known := map[string]bool{}
	for _, h := range holds {
		if !w.records.ours(h.holder.boot) {
			continue
		}
		known[h.lock] = true
		if old := w.locks[h.lock]; old == nil || old.hold != h {
			w.gone(h.lock)
			w.came(h)
		} else {
			old.unsay() // it may have expired meanwhile: to state it again does no harm
		}
	}
	for lock := range w.locks {
		if !known[lock] {
			w.gone(lock)
		}
	}
	w.away = ""
	w.mayState(denied)
	wake(w.find)
	wake(w.speak)
	return revision, nil
}

// mayState takes whether etcd would take statements; err is nil if it would. It is called with mu.
func (w *Witness) mayState(err error) {
	if err != nil {
		w.fails(&w.mute, "nothing can be stated", err)
		return
	}
	w.mute = ""
}

// interrupted tells that the locks are not known at the moment.
func (w *Witness) interrupted(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fails(&w.away, "the locks cannot be followed", err)
}

// fails keeps what is wrong, and logs it if that is news. It is called with mu.
func (w *Witness) fails(trouble *string, what string, err error) {
	sentence := what + ": " + w.cfg.Explain(err)
	if *trouble != sentence {
		w.cfg.Log.Warn().Err(err).Msg(sentence)
	}
	*trouble = sentence
}

// apply takes the events of one revision.
func (w *Witness) apply(_ int64, events []protocol.Event) {
	c := w.records.apply(events)
	if len(c.came)+len(c.gone)+len(c.lost) == 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, lock := range c.gone {
		w.gone(lock)
	}
	for _, h := range c.came {
		if h.holder.boot != w.cfg.Machine.BootID {
			w.twin(h)
			continue
		}
		w.came(h)
	}
	for _, l := range w.locks {
		if l.statement != nil && slices.Contains(c.lost, l.uuid) {
			l.unsay()
			wake(w.speak)
		}
	}
}

// unsay notices that etcd may not have the statement any more. An answer under way says nothing then: the statement may
// have gone after it was written. It is called with mu.
func (l *held) unsay() {
	l.said = false
	l.lost++
}

// twin notices that an earlier boot of this machine is not over, so that it was another machine's: nothing is said of
// that any more. It is called with mu.
func (w *Witness) twin(h hold) {
	w.records.earlier = slices.DeleteFunc(slices.Clone(w.records.earlier),
		func(boot string) bool { return boot == h.holder.boot })
	for lock, l := range w.locks {
		if l.holder.boot == h.holder.boot {
			w.gone(lock)
		}
	}
	w.cfg.Log.Error().Str("lock", h.lock).Str("boot_id", h.holder.boot).
		Msg("a lock was taken under a boot id that this machine had before its last reboot: another machine has a " +
			"copy of the state directory, and reboots prove nothing about that boot any more")
}

// came adds a hold. It is called with mu.
func (w *Witness) came(h hold) {
	l := &held{hold: h}
	w.locks[h.lock] = l
	if h.holder.boot != w.cfg.Machine.BootID {
		l.statement = w.rebooted(h)
		wake(w.speak)
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

// gone drops the hold of a lock, if there is one. It is called with mu.
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

// rebooted says that the holder ended with an earlier boot of this machine.
func (w *Witness) rebooted(h hold) *metadata.Statement {
	s := w.statement(h, metadata.CauseRebooted, "the machine "+w.cfg.Machine.Hostname+" has booted since")
	return &s
}

func (w *Witness) statement(h hold, cause, how string) metadata.Statement {
	return metadata.Statement{Lock: h.lock, UUID: h.uuid, Token: h.token, Cause: cause, How: how, Witness: "host",
		By: w.cfg.ID, At: metadata.Time{Time: w.cfg.Now()}}
}
