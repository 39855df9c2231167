package locks

import (
	"slices"
	"strings"
)

// rowNamed is where the row of a lock stands, or would stand, among rows that are sorted by name.
func rowNamed(rows []*Row, name string) (i int, found bool) {
	return slices.BinarySearchFunc(rows, name, func(r *Row, name string) int { return strings.Compare(r.Name, name) })
}

// total is what rows add up to.
type total struct {
	counts  Counts
	version uint64 // changes with anything that a list shows of them
}

// totalOf sums up rows.
func totalOf(rows []*Row) (all total) {
	for _, part := range inChunks(len(rows), minChunk, func(from, to int) (part total) {
		for _, r := range rows[from:to] {
			part.counts.add(r)
			part.version += r.Fingerprint
		}
		return part
	}) {
		all.counts.sum(&part.counts)
		all.version += part.version
	}
	return all
}
