package lockview

import (
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// held is what the view keeps of each lock. Only its statements and the times at which it was seen are set after
// construction, before any reader sees it.
type held struct {
	metadata.Record
	size int32     // bytes of all names and values in etcd
	keys *keyNames // of a canonical lock; nil if it is irregular
	// idleUntil is the last result of [staleness.IdleUntil]; 0 = not computed yet, or due soon.
	idleUntil atomic.Int64
}

// sizeOf limits a size to an int32. The exact value matters only if it is far smaller.
func sizeOf(size int) int32 { return int32(min(size, math.MaxInt32)) }

// newHeld keeps a record, whose texts share memory with equal ones. An irregular one has no keys.
func newHeld(rec metadata.Record, size int, keys *keyNames, in *interner) *held {
	texts := rec.Name + rec.UUID
	rec.Name = texts[:len(rec.Name)]
	rec.UUID = texts[len(rec.Name):]
	for _, text := range rec.Texts() {
		*text = in.text(*text)
	}
	if rec.Process != nil {
		rec.Process = in.process(*rec.Process)
	}
	return &held{Record: rec, size: sizeOf(size), keys: keys}
}

// maxChunk is chosen so that finding a lock costs about as much as inserting it.
const maxChunk = 512

// index holds the locks sorted by name, in chunks. With hundreds of thousands of locks it takes a third of the
// memory of a map plus a sorted slice, and never needs re-sorting.
type index struct {
	chunks [][]*held // none is empty
	count  int
}

// find returns the chunk, and the position in it, where name is or would be.
func (x *index) find(name string) (chunk, pos int, found bool) {
	chunk, _ = slices.BinarySearchFunc(x.chunks, name, func(s []*held, name string) int {
		return strings.Compare(s[len(s)-1].Name, name)
	})
	if chunk == len(x.chunks) {
		return chunk, 0, false
	}
	pos, found = slices.BinarySearchFunc(x.chunks[chunk], name, func(h *held, name string) int {
		return strings.Compare(h.Name, name)
	})
	return chunk, pos, found
}

// get returns the lock with this name; nil if there is none.
func (x *index) get(name string) *held {
	chunk, pos, found := x.find(name)
	if !found {
		return nil
	}
	return x.chunks[chunk][pos]
}

func (x *index) put(h *held) {
	chunk, pos, found := x.find(h.Name)
	switch {
	case found:
		x.chunks[chunk][pos] = h
		return
	case len(x.chunks) == 0:
		x.chunks = [][]*held{make([]*held, 0, maxChunk)}
	case chunk == len(x.chunks): // after all others
		chunk--
		pos = len(x.chunks[chunk])
	}
	x.count++
	x.chunks[chunk] = slices.Insert(x.chunks[chunk], pos, h)
	if full := x.chunks[chunk]; len(full) == maxChunk {
		half := maxChunk / 2
		if chunk == len(x.chunks)-1 && pos == maxChunk-1 {
			half = maxChunk - 1 // names added in order fill their chunks
		}
		right := append(make([]*held, 0, maxChunk), full[half:]...)
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

// load fills an empty index with sorted locks, leaving room in the chunks.
func (x *index) load(locks []*held) {
	x.count = len(locks)
	for chunk := range slices.Chunk(locks, maxChunk*3/4) {
		x.chunks = append(x.chunks, append(make([]*held, 0, maxChunk), chunk...))
	}
}

// records returns all records in order.
func (x *index) records() []*metadata.Record {
	all := make([]*metadata.Record, 0, x.count)
	for _, s := range x.chunks {
		for _, h := range s {
			all = append(all, &h.Record)
		}
	}
	return all
}

// any reports whether a record with a name between from and end satisfies is.
func (x *index) any(from, end string, is func(*held) bool) bool {
	chunk, pos, _ := x.find(from)
	for ; chunk < len(x.chunks); chunk++ {
		for _, h := range x.chunks[chunk][pos:] {
			switch {
			case h.Name >= end:
				return false
			case is(h):
				return true
			}
		}
		pos = 0
	}
	return false
}

// dueSoon returns the locks that are not known to be idle, sorted by name, and the number of the others. oldest is when
// the first of all was taken, by its holder's clock; zero if none says.
func (x *index) dueSoon(now time.Duration) (dueSoon []*held, idle int, oldest time.Time) {
	for _, chunk := range x.chunks {
		for _, h := range chunk {
			oldest = protocol.Earlier(oldest, h.LockedAt)
			if time.Duration(h.idleUntil.Load()) > now {
				idle++
			} else {
				dueSoon = append(dueSoon, h)
			}
		}
	}
	return dueSoon, idle, oldest
}

// forgetIdle forgets which locks are idle.
func (x *index) forgetIdle() {
	for _, chunk := range x.chunks {
		for _, h := range chunk {
			h.idleUntil.Store(0)
		}
	}
}
