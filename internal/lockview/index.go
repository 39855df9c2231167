package lockview

import (
	"slices"
	"strings"

	"github.com/clustermutex/unlocker/pkg/metadata"
)

// held is what the view keeps of each lock: its keys, and the record that they decode to. Only the record's statements
// and the times at which it was seen are set after construction, before any reader sees it.
type held struct {
	metadata.Record
	keys keys
}

// index holds the locks sorted by name: the shares of a lock lie side by side.
type index []*held

// find returns the position where name is or would be.
func (x index) find(name string) (pos int, found bool) {
	return slices.BinarySearchFunc(x, name, func(h *held, name string) int { return strings.Compare(h.Name, name) })
}

// get returns the lock with this name; nil if there is none.
func (x index) get(name string) *held {
	pos, found := x.find(name)
	if !found {
		return nil
	}
	return x[pos]
}

func (x *index) put(h *held) {
	pos, found := x.find(h.Name)
	if found {
		(*x)[pos] = h
		return
	}
	*x = slices.Insert(*x, pos, h)
}

func (x *index) remove(name string) {
	if pos, found := x.find(name); found {
		*x = slices.Delete(*x, pos, pos+1)
	}
}

// records returns all records in order.
func (x index) records() []*metadata.Record {
	all := make([]*metadata.Record, len(x))
	for i, h := range x {
		all[i] = &h.Record
	}
	return all
}
