package lockview

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/clustermutex/unlocker/internal/protocol"
)

// builder builds a snapshot from a list. The keys of a lock are adjacent in a list, so the builder never holds the
// values of more than one lock.
type builder struct {
	view  *View
	reuse bool // take unchanged records from the view
	snap  *snapshot
	locks []*held

	lock       string // being read
	keys       keys   // of it, so far
	foreign    int    // number of foreign keys in its range
	foreignKey string // one of them
}

func (v *View) list(ctx context.Context, reuse bool) (*builder, int64, error) {
	b := &builder{view: v, reuse: reuse, snap: newSnapshot(v.layout)}
	revision, err := v.src.List(ctx, b.add)
	if err != nil {
		return nil, 0, err
	}
	b.flush()
	byName := func(a, b *held) int { return strings.Compare(a.Name, b.Name) }
	if !slices.IsSortedFunc(b.locks, byName) { // keys and names sort differently if names have characters before "/"
		slices.SortFunc(b.locks, byName)
	}
	return b, revision, nil
}

func (b *builder) add(kv protocol.KV) {
	key := b.snap.layout.Parse(kv.Key)
	if !b.view.keepsKind(key.Kind) {
		return
	}
	switch key.Kind {
	case protocol.KindField:
		b.switchTo(key.Lock)
		b.keys.set(fieldOf(key.ID, kv), false)
	case protocol.KindForeign:
		b.snap.foreign.noteOther(kv)
		if key.Lock == "" {
			b.snap.foreign.add(kv.Key, "", 1, false)
			b.snap.misplaced.apply(kv, false, b.view.Clock())
			return
		}
		b.switchTo(key.Lock)
		b.foreign++
		b.foreignKey = kv.Key
	case protocol.KindTicket:
		b.snap.queues.put(protocol.DecodeTicket(key, kv), b.view.Clock())
	case protocol.KindDeath, protocol.KindSuspicion:
		st := decodeStatement(key, kv, b.view.Clock())
		if b.view.loadOnly && st != nil && !st.At.IsZero() {
			st.Seen += min(0, time.Until(st.At.Time))
		}
		b.snap.statements.list(key, st, len(kv.Key)+len(kv.Value))
	case protocol.KindDelay:
		b.snap.delays[key.Lock] = protocol.DecodeDelay(key.Lock, kv)
	case protocol.KindUnlocker:
		b.snap.putUnlocker(key.ID, kv, time.Time{})
	}
}

func (b *builder) switchTo(lock string) {
	if b.lock != lock {
		b.flush()
		b.lock = lock
	}
}

// flush finishes the lock being read.
func (b *builder) flush() {
	held := len(b.keys.fields) > 0
	if b.foreign > 0 {
		b.snap.foreign.add(b.foreignKey, b.lock, b.foreign, held)
	}
	if held {
		b.finish()
	}
	b.lock = ""
	b.keys = keys{fields: b.keys.fields[:0]}
	b.foreign = 0
}

// finish adds the lock being read, if it is wanted.
func (b *builder) finish() {
	if b.reuse {
		if h := b.view.unchanged(b); h != nil {
			b.locks = append(b.locks, h)
			return
		}
	}
	if keep := b.view.opt.Keep; keep != nil && !keep(b.keys.fields) {
		return
	}
	b.locks = append(b.locks, b.snap.decode(b.lock, b.keys.clone()))
}

// unchanged returns what the view keeps of the lock being read, if it was decoded from the same keys; else nil.
func (v *View) unchanged(b *builder) *held {
	v.mu.Lock()
	defer v.mu.Unlock()
	h := v.snap.locks.get(b.lock)
	known, has := v.snap.foreign.in[b.lock]
	if h == nil || has != (b.foreign > 0) || known != b.foreign {
		return nil
	}
	// If the lock changed while an earlier list was reconciled, the foreign keys were recounted, but the record was not
	// updated.
	if h.HasForeignKeys() != has || !h.keys.same(&b.keys) {
		return nil
	}
	return h
}
