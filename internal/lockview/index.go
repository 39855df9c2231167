package lockview

import (
	"slices"
	"strings"

	"github.com/clustermutex/unlocker/pkg/metadata"
)

// item is what the view keeps of one lock. It is copied, not shared.
type item struct {
	rec  *metadata.Record
	size int // bytes of all names and values in etcd
}

func (it item) name() string { return it.rec.Name }

// maxShelf makes finding a lock and moving its neighbours aside about equally cheap.
const maxShelf = 512

// index holds the items sorted by the names of their locks, on shelves. With hundreds of thousands of locks it takes a
// third of the memory of a map and a sorted slice together, and never has to be sorted again.
type index struct {
	shelves [][]item // none is empty
	count   int
}

// find returns the shelf and the place on it where name is or would be.
func (x *index) find(name string) (shelf, place int, found bool) {
	shelf, _ = slices.BinarySearchFunc(x.shelves, name, func(s []item, name string) int {
		return strings.Compare(s[len(s)-1].name(), name)
	})
	if shelf == len(x.shelves) {
		return shelf, 0, false
	}
	place, found = slices.BinarySearchFunc(x.shelves[shelf], name, func(it item, name string) int {
		return strings.Compare(it.name(), name)
	})
	return shelf, place, found
}

func (x *index) get(name string) (item, bool) {
	shelf, place, found := x.find(name)
	if !found {
		return item{}, false
	}
	return x.shelves[shelf][place], true
}

func (x *index) put(it item) {
	shelf, place, found := x.find(it.name())
	switch {
	case found:
		x.shelves[shelf][place] = it
		return
	case len(x.shelves) == 0:
		x.shelves = [][]item{make([]item, 0, maxShelf)}
	case shelf == len(x.shelves): // behind all others
		shelf--
		place = len(x.shelves[shelf])
	}
	x.count++
	x.shelves[shelf] = slices.Insert(x.shelves[shelf], place, it)
	if full := x.shelves[shelf]; len(full) == maxShelf {
		half := maxShelf / 2
		if shelf == len(x.shelves)-1 && place == maxShelf-1 {
			half = maxShelf - 1 // names that come in order fill their shelves
		}
		right := append(make([]item, 0, maxShelf), full[half:]...)
		clear(full[half:])
		x.shelves[shelf] = full[:half]
		x.shelves = slices.Insert(x.shelves, shelf+1, right)
	}
}

func (x *index) remove(name string) {
	shelf, place, found := x.find(name)
	if !found {
		return
	}
	x.count--
	left := slices.Delete(x.shelves[shelf], place, place+1)
	x.shelves[shelf] = left
	switch {
	case len(left) == 0:
		x.shelves = slices.Delete(x.shelves, shelf, shelf+1)
	case shelf+1 < len(x.shelves) && len(left)+len(x.shelves[shelf+1]) < maxShelf/4:
		x.shelves[shelf] = append(left, x.shelves[shelf+1]...)
		x.shelves = slices.Delete(x.shelves, shelf+1, shelf+2)
	}
}

// load fills an empty index with sorted items, leaving room on the shelves.
func (x *index) load(items []item) {
	x.count = len(items)
	for chunk := range slices.Chunk(items, maxShelf*3/4) {
		x.shelves = append(x.shelves, append(make([]item, 0, maxShelf), chunk...))
	}
}

// records returns all records in order.
func (x *index) records() []*metadata.Record {
	all := make([]*metadata.Record, 0, x.count)
	for _, s := range x.shelves {
		for _, it := range s {
			all = append(all, it.rec)
		}
	}
	return all
}

// items returns all items in order.
func (x *index) items() []item {
	all := make([]item, 0, x.count)
	for _, s := range x.shelves {
		all = append(all, s...)
	}
	return all
}
