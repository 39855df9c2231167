package lockview

import (
	"math"
	"time"

	"github.com/clustermutex/unlocker/pkg/metadata"
)

// held is what the view keeps of each lock. Only its statements and the times at which it was seen are set later,
// before any reader sees it.
type held struct {
	metadata.Record
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

// with returns the lock with another record of the same hold.
func (it item) with(r *metadata.Record, size int) item {
	return item{rec: &held{*r, sizeOf(size), it.rec.own}}
}

// newItem keeps a record, whose texts share memory with equal ones.
func newItem(r *metadata.Record, size int, own ownKeys, i *interner) item {
	rec := *r
	texts := rec.Name + rec.UUID
	rec.Name, rec.UUID = texts[:len(rec.Name)], texts[len(rec.Name):]
	for _, text := range rec.Texts() {
		*text = i.text(*text)
	}
	if rec.Process != nil {
		rec.Process = i.process(*rec.Process)
	}
	return item{rec: &held{rec, sizeOf(size), own}}
}
