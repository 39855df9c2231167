package lockview

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// builder builds a snapshot from a list. The keys of a lock are adjacent in a list, so the builder never holds the
// values of more than one lock.
type builder struct {
	view  *View
	reuse bool // take unchanged records from the view
	snap  *snapshot
	locks []*held

	lock       string // being read
	fields     []metadata.Field
	values     [][]byte // of fields; decoded only if something changed
	surplus    int      // number of fields beyond maxListed
	newest     int64    // highest mod revision of a field
	foreign    int      // number of foreign keys in its range
	foreignKey string   // one of them
}

// maxListed is how many fields of one lock are held in memory while it is read.
const maxListed = 1000

func (v *View) list(ctx context.Context, reuse bool) (*builder, int64, error) {
	b := &builder{view: v, reuse: reuse, snap: newSnapshot(v.layout, &v.intern)}
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
	if !b.view.follows(key.Kind) {
		return
	}
	switch key.Kind {
	case protocol.KindField:
		b.switchTo(key.Lock)
		b.newest = max(b.newest, kv.ModRevision)
		if len(b.fields) >= maxListed && !metadata.IsReserved(key.ID) {
			b.surplus++
			return
		}
		b.fields = append(b.fields, metadata.Field{Name: b.snap.intern.text(key.ID), CreateRevision: kv.CreateRevision,
			ModRevision: kv.ModRevision, Version: kv.Version})
		b.values = append(b.values, kv.Value)
	case protocol.KindForeign:
		if key.Lock == "" {
			b.snap.foreign.add(kv.Key, "", 1, false)
			b.snap.misplaced.apply(kv, false)
			return
		}
		b.switchTo(key.Lock)
		b.foreign++
		b.foreignKey = kv.Key
	case protocol.KindTicket:
		b.snap.queues.put(decodeWaiter(key.Lock, key.ID, kv, b.view.Clock(), b.snap.intern))
	case protocol.KindDeath, protocol.KindSuspicion:
		b.snap.stated.list(key, decodeStatement(key, kv, b.snap.intern, b.view.Clock()), len(kv.Key)+len(kv.Value))
	case protocol.KindDelay:
		b.snap.delays[key.Lock] = decodeDelay(key.Lock, kv)
	case protocol.KindUnlocker:
		if len(b.snap.unlockers) < maxUnlockers {
			b.snap.unlockers[key.ID] = decodeUnlocker(key.ID, kv, time.Time{}, b.snap.intern)
		}
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
	held := len(b.fields) > 0
	if b.foreign > 0 {
		b.snap.foreign.add(b.foreignKey, b.lock, b.foreign, held)
	}
	if held {
		b.finish()
	}
	clear(b.fields)
	clear(b.values)
	b.lock = ""
	b.fields = b.fields[:0]
	b.values = b.values[:0]
	b.surplus = 0
	b.newest = 0
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
	for i, value := range b.values {
		b.fields[i].Value = string(value)
	}
	if keep := b.view.opt.Keep; keep != nil && !keep(b.fields) {
		return
	}
	h, o := b.snap.decode(b.lock, b.fields, b.surplus)
	if o != nil {
		o.newest = b.newest
		b.snap.irregulars[h.Name] = o
	}
	b.locks = append(b.locks, h)
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
	same := h.Foreign() == has
	if o := v.snap.irregulars[b.lock]; o != nil {
		same = same && o.madeOf(b)
	} else {
		same = same && b.surplus == 0 && h.madeOf(b.fields)
	}
	if !same {
		return nil
	}
	return h
}

// madeOf compares revisions, because a key never has two values at one revision. For the surplus keys, which are not
// kept, it compares their number and newest revision.
func (o *irregular) madeOf(b *builder) bool {
	i, surplus := 0, b.surplus
	for _, f := range b.fields {
		switch {
		case i >= maxFields && !metadata.IsReserved(f.Name):
			surplus++
		case i == len(o.fields) || o.fields[i].Name != f.Name || o.fields[i].ModRevision != f.ModRevision:
			return false
		default:
			i++
		}
	}
	return i == len(o.fields) && surplus == o.surplus && (surplus == 0 || b.newest == o.newest)
}
