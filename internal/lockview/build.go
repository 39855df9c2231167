package lockview

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// builder makes a picture of a list. Keys of one lock follow each other there, so it never holds more than one lock's
// values.
type builder struct {
	view  *View
	reuse bool // records that did not change are taken from the view
	pic   *picture
	items []item

	lock    string // the one being read
	fields  []metadata.Field
	values  [][]byte // of fields; most need not be looked at
	surplus int      // more fields than a lock may have
	newest  int64    // the highest mod revision of a field
	strays  int
	stray   string // one of them
}

// maxListed is how many fields of one lock are held while it is read.
const maxListed = 1000

// read lists everything.
func (v *View) read(ctx context.Context, reuse bool) (*builder, int64, error) {
	b := &builder{view: v, reuse: reuse, pic: newPicture(v.layout, &v.intern)}
	revision, err := v.src.List(ctx, b.add)
	if err != nil {
		return nil, 0, err
	}
	b.flush()
	byName := func(a, b item) int { return strings.Compare(a.name(), b.name()) }
	if !slices.IsSortedFunc(b.items, byName) { // keys and names sort differently where names have characters before "/"
		slices.SortFunc(b.items, byName)
	}
	return b, revision, nil
}

func (b *builder) add(kv protocol.KV) {
	switch key := b.pic.layout.Parse(kv.Key); key.Kind {
	case protocol.KindField:
		b.turnTo(key.Lock)
		b.newest = max(b.newest, kv.ModRevision)
		if len(b.fields) >= maxListed && !ofProtocol(key.ID) {
			b.surplus++
			return
		}
		b.fields = append(b.fields, metadata.Field{Name: key.ID, CreateRevision: kv.CreateRevision,
			ModRevision: kv.ModRevision})
		b.values = append(b.values, kv.Value)
	case protocol.KindForeign:
		if key.Lock == "" {
			b.pic.stray(kv.Key, "", 1, false)
			b.pic.misplace(kv, false)
			return
		}
		b.turnTo(key.Lock)
		b.strays++
		b.stray = kv.Key
	case protocol.KindTicket:
		b.pic.queues.put(waiter(key.Lock, key.ID, kv, b.view.Clock(), b.pic.intern))
	case protocol.KindUnlocker:
		if len(b.pic.unlockers) < maxUnlockers {
			b.pic.unlockers[key.ID] = unlocker(key.ID, kv, time.Time{}, b.pic.intern)
		}
	}
}

func (b *builder) turnTo(lock string) {
	if b.lock != lock {
		b.flush()
		b.lock = lock
	}
}

// flush finishes the lock that was read.
func (b *builder) flush() {
	held := len(b.fields) > 0
	if b.strays > 0 {
		b.pic.stray(b.stray, b.lock, b.strays, held)
	}
	if held {
		b.items = append(b.items, b.item())
	}
	clear(b.fields)
	clear(b.values)
	b.lock, b.fields, b.values = "", b.fields[:0], b.values[:0]
	b.surplus = 0
	b.newest = 0
	b.strays = 0
}

// item is the lock that was read.
func (b *builder) item() item {
	if b.reuse {
		if it, ok := b.view.unchanged(b); ok {
			return it
		}
	}
	for i, value := range b.values {
		b.fields[i].Value = string(value)
	}
	it, o := b.pic.decode(b.lock, b.fields, b.surplus)
	if o != nil {
		o.newest = b.newest
		b.pic.odd[it.name()] = o
	}
	return it
}

// unchanged returns the view's item of the lock that was read, if its keys are those it was made of.
func (v *View) unchanged(b *builder) (item, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	it, held := v.pic.locks.get(b.lock)
	known, has := v.pic.strays[b.lock]
	if !held || has != (b.strays > 0) || known != b.strays {
		return item{}, false
	}
	// a list that was adopted while the lock changed counted the foreign keys anew, but left the record
	if it.rec.Foreign() != has {
		return item{}, false
	}
	if o := v.pic.odd[b.lock]; o != nil {
		return it, o.madeOf(b)
	}
	return it, b.surplus == 0 && plainMadeOf(it.rec, b.fields)
}

// madeOf compares by revisions: a key never has two values at one. Of the surplus, which is not kept, their number and
// the newest revision have to do.
func (o *odd) madeOf(b *builder) bool {
	i, surplus := 0, b.surplus
	for _, f := range b.fields {
		switch {
		case i >= maxFields && !ofProtocol(f.Name):
			surplus++
		case i == len(o.fields) || o.fields[i].Name != f.Name || o.fields[i].ModRevision != f.ModRevision:
			return false
		default:
			i++
		}
	}
	return i == len(o.fields) && surplus == o.surplus && (surplus == 0 || b.newest == o.newest)
}

func plainMadeOf(r *metadata.Record, fields []metadata.Field) bool {
	keys := 4
	if r.Alive != nil {
		keys = 5
	}
	for _, f := range fields {
		want := r.Token
		switch f.Name {
		case metadata.FieldUUID, metadata.FieldMetadata:
		case metadata.FieldAlertAt, metadata.FieldAutoUnlockAt:
			want = r.DeadlineRevision
		case metadata.FieldAlive:
			if want = r.DeadlineRevision; r.Alive == nil {
				return false
			}
		default:
			return false
		}
		if f.ModRevision != want {
			return false
		}
	}
	return len(fields) == keys
}
