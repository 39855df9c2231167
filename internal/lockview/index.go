package lockview

import (
	"math"
	"slices"
	"strings"
	"time"

	"github.com/clustermutex/unlocker/pkg/metadata"
)

// held is what the view keeps of each lock. Only its statements and the times at which it was seen are set later,
// before any reader sees it.
type held struct {
	metadata.Record
	size int32     // bytes of all names and values in etcd
	keys *keyNames // of a canonical lock; nil: it is irregular
}

// item refers to what the view keeps of a lock; without a record there is none.
type item struct {
	rec *held
	// idleUntil is what [staleness.IdleUntil] last said of it, in the index; 0 = not asked yet, or it is due soon.
	idleUntil time.Duration
}

// sizeOf bounds a size, of which the exact value only counts where it is far smaller.
func sizeOf(size int) int32 { return int32(min(size, math.MaxInt32)) }

func (it item) name() string { return it.rec.Name }

// newItem keeps a record, whose texts share memory with equal ones. It has no keys if it is irregular.
func newItem(rec metadata.Record, size int, keys *keyNames, in *interner) item {
	texts := rec.Name + rec.UUID
	rec.Name = texts[:len(rec.Name)]
	rec.UUID = texts[len(rec.Name):]
	for _, text := range rec.Texts() {
		*text = in.text(*text)
	}
	if rec.Process != nil {
		rec.Process = in.process(*rec.Process)
	}
	return item{rec: &held{rec, sizeOf(size), keys}}
}

// maxChunk is chosen so that finding a lock costs about as much as making room for it.
const maxChunk = 512

// index holds the items sorted by lock name, in chunks. With hundreds of thousands of locks it takes a third of the
// memory of a map plus a sorted slice, and never has to be sorted again.
type index struct {
	chunks [][]item // none is empty
	count  int
}

// find returns the chunk, and the position in it, where name is or would be.
func (x *index) find(name string) (chunk, pos int, found bool) {
	chunk, _ = slices.BinarySearchFunc(x.chunks, name, func(s []item, name string) int {
		return strings.Compare(s[len(s)-1].name(), name)
	})
	if chunk == len(x.chunks) {
		return chunk, 0, false
	}
	pos, found = slices.BinarySearchFunc(x.chunks[chunk], name, func(it item, name string) int {
		return strings.Compare(it.name(), name)
	})
	return chunk, pos, found
}

func (x *index) get(name string) (item, bool) {
	chunk, pos, found := x.find(name)
	if !found {
		return item{}, false
	}
	return x.chunks[chunk][pos], true
}

func (x *index) put(it item) {
	chunk, pos, found := x.find(it.name())
	switch {
	case found:
		x.chunks[chunk][pos] = it
		return
	case len(x.chunks) == 0:
		x.chunks = [][]item{make([]item, 0, maxChunk)}
	case chunk == len(x.chunks): // after all others
		chunk--
		pos = len(x.chunks[chunk])
	}
	x.count++
	x.chunks[chunk] = slices.Insert(x.chunks[chunk], pos, it)
	if full := x.chunks[chunk]; len(full) == maxChunk {
		half := maxChunk / 2
		if chunk == len(x.chunks)-1 && pos == maxChunk-1 {
			half = maxChunk - 1 // names added in order fill their chunks
		}
		right := append(make([]item, 0, maxChunk), full[half:]...)
		clear(full[half:])
		x.chunks[chunk] = full[:half]
		x.chunks = slices.Insert(x.chunks, chunk+1, right)
	}
}

func (x *index) remove(name string) {
	chunk, pos, found := x.find(name)
	if !found {
		return
	}
	x.count--
	rest := slices.Delete(x.chunks[chunk], pos, pos+1)
	x.chunks[chunk] = rest
	switch {
	case len(rest) == 0:
		x.chunks = slices.Delete(x.chunks, chunk, chunk+1)
	case chunk+1 < len(x.chunks) && len(rest)+len(x.chunks[chunk+1]) < maxChunk/4:
		x.chunks[chunk] = append(rest, x.chunks[chunk+1]...)
		x.chunks = slices.Delete(x.chunks, chunk+1, chunk+2)
	}
}

// load fills an empty index with sorted items, leaving room in the chunks.
func (x *index) load(items []item) {
	x.count = len(items)
	for chunk := range slices.Chunk(items, maxChunk*3/4) {
		x.chunks = append(x.chunks, append(make([]item, 0, maxChunk), chunk...))
	}
}

// records returns all records in order.
func (x *index) records() []*metadata.Record {
	all := make([]*metadata.Record, 0, x.count)
	for _, s := range x.chunks {
		for _, it := range s {
			all = append(all, &it.rec.Record)
		}
	}
	return all
}

// items returns all items in order.
func (x *index) items() []item {
	all := make([]item, 0, x.count)
	for _, s := range x.chunks {
		all = append(all, s...)
	}
	return all
}

// any reports whether a record whose name lies from one name to another is one that is looked for.
func (x *index) any(from, end string, is func(*held) bool) bool {
	chunk, pos, _ := x.find(from)
	for ; chunk < len(x.chunks); chunk++ {
		for _, it := range x.chunks[chunk][pos:] {
			switch {
			case it.name() >= end:
				return false
			case is(it.rec):
				return true
			}
		}
		pos = 0
	}
	return false
}

// dueSoon returns the locks that are not known to be idle, by name, and counts the others. oldest is when the first of
// all was taken, by its holder's clock; zero if none says.
func (x *index) dueSoon(now time.Duration) (dueSoon []*held, idle int, oldest time.Time) {
	for _, chunk := range x.chunks {
		for _, it := range chunk {
			if at := it.rec.LockedAt; !at.IsZero() && (oldest.IsZero() || at.Before(oldest)) {
				oldest = at
			}
			if it.idleUntil > now {
				idle++
			} else {
				dueSoon = append(dueSoon, it.rec)
			}
		}
	}
	return dueSoon, idle, oldest
}

// noteIdle notes until when a lock is idle, unless it has changed.
func (x *index) noteIdle(it item) {
	if chunk, pos, found := x.find(it.name()); found && x.chunks[chunk][pos].rec == it.rec {
		x.chunks[chunk][pos].idleUntil = it.idleUntil
	}
}

// forgetIdle forgets which locks are idle.
func (x *index) forgetIdle() {
	for _, chunk := range x.chunks {
		for i := range chunk {
			chunk[i].idleUntil = 0
		}
	}
}
