package lockview

import (
	"math"
	"time"

	"github.com/clustermutex/unlocker/internal/compact"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// held is what the view keeps of each lock. Only its statements and the times at which it was seen are set later,
// before any reader sees it.
type held struct {
	compact.Record
	size int32   // bytes of all names and values in etcd
	own  ownKeys // of a canonical lock
}

// item refers to what the view keeps of a lock; without a record there is none.
type item struct {
	rec *held
	// settledUntil is what [staleness.SettledUntil] last said of it, in the index; 0 = not asked yet, or not settled.
	settledUntil time.Duration
}

// sizeOf bounds a size, of which the exact value only counts where it is far smaller.
func sizeOf(size int) int32 { return int32(min(size, math.MaxInt32)) }

func (it item) name() string { return it.rec.Name }

// with returns the lock with another record of the same holder.
func (it item) with(r *metadata.Record, size int, i *interner) item {
	return item{rec: &held{compact.New(r, it.rec.Holder, &i.nothing), sizeOf(size), it.rec.own}}
}

// newItem copies a record into as little memory as possible.
func newItem(r *metadata.Record, size int, own ownKeys, i *interner) item {
	rec := *r
	texts := rec.Name + rec.UUID
	rec.Name, rec.UUID = texts[:len(rec.Name)], texts[len(rec.Name):]
	rec.Purpose = i.text(rec.Purpose)
	return item{rec: &held{compact.New(&rec, i.holder(compact.HolderOf(r)), &i.nothing), sizeOf(size), own}}
}
