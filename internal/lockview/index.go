package lockview

import (
	"slices"
	"strings"

	"github.com/clustermutex/unlocker/pkg/metadata"
)

// maxChunk is chosen so that finding a lock costs about as much as making room for it.
const maxChunk = 512

// index holds the items sorted by lock name, in chunks. With hundreds of thousands of locks it takes a third of the
// memory of a map plus a sorted slice, and never has to be sorted again.
type index struct {
	chunks [][]item // none is empty
	count  int
	first  *held // the one taken first, by its holder's clock; nil = not known, or none says when
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
		x.rerank(x.chunks[chunk][pos].rec, it.rec)
		x.chunks[chunk][pos] = it
		return
	case len(x.chunks) == 0:
		x.chunks = [][]item{make([]item, 0, maxChunk)}
	case chunk == len(x.chunks): // after all others
		chunk--
		pos = len(x.chunks[chunk])
	}
	x.count++
	x.rank(it.rec)
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
	x.unrank(x.chunks[chunk][pos].rec)
	left := slices.Delete(x.chunks[chunk], pos, pos+1)
	x.chunks[chunk] = left
	switch {
	case len(left) == 0:
		x.chunks = slices.Delete(x.chunks, chunk, chunk+1)
	case chunk+1 < len(x.chunks) && len(left)+len(x.chunks[chunk+1]) < maxChunk/4:
		x.chunks[chunk] = append(left, x.chunks[chunk+1]...)
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
