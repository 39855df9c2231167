package locks

import (
	"iter"
	"slices"
	"sort"
	"strings"
	"sync"
)

// runSize is how many rows a new run has. Longer runs cost more where locks change, shorter ones where none do.
const runSize = 256

// Rows is a list of locks. It is immutable, and consists of runs, so that a list that differs little from another one
// shares most of its memory with it.
type Rows struct {
	runs []*run // none is empty
	ends []int  // for each run, how many rows there are up to its end
}

// run is rows that follow each other in a list, and what they add up to.
type run struct {
	rows []*Row

	summing sync.Once
	sum     total

	grouping sync.Once
	groups   []Group
}

// total is what rows add up to. It does not depend on how they are divided into runs.
type total struct {
	counts  Counts
	version uint64
}

// rowsOf is a list of these rows.
func rowsOf(rows []*Row) Rows {
	var b builder
	b.put(rows)
	return b.list()
}

// listOf is the list of these runs.
func listOf(runs []*run) Rows {
	l := Rows{runs, make([]int, len(runs))}
	end := 0
	for i, r := range runs {
		end += len(r.rows)
		l.ends[i] = end
	}
	return l
}

// Len is the number of rows.
func (l Rows) Len() int {
	if len(l.ends) == 0 {
		return 0
	}
	return l.ends[len(l.ends)-1]
}

// At is the row at an index.
func (l Rows) At(i int) *Row {
	k := l.runAt(i)
	return l.runs[k].rows[i-l.start(k)]
}

// All goes over the rows.
func (l Rows) All() iter.Seq[*Row] {
	return func(yield func(*Row) bool) {
		for _, run := range l.runs {
			for _, r := range run.rows {
				if !yield(r) {
					return
				}
			}
		}
	}
}

// Slice returns the rows from one index up to another one.
func (l Rows) Slice(from, to int) []*Row {
	some := make([]*Row, 0, to-from)
	for k := l.runAt(from); len(some) < to-from; k++ {
		rows := l.runs[k].rows[max(0, from-l.start(k)):]
		some = append(some, rows[:min(len(rows), to-from-len(some))]...)
	}
	return some
}

// runAt is the run in which the row at an index stands.
func (l Rows) runAt(i int) int { return sort.SearchInts(l.ends, i+1) }

// start is the index of the first row of a run.
func (l Rows) start(k int) int { return l.ends[k] - len(l.runs[k].rows) }

// search returns the index of the first row that is behind a place. All rows that follow it are.
func (l Rows) search(behind func(*Row) bool) int {
	k := sort.Search(len(l.runs), func(k int) bool { return behind(l.runs[k].last()) })
	if k == len(l.runs) {
		return l.Len()
	}
	rows := l.runs[k].rows
	return l.start(k) + sort.Search(len(rows), func(i int) bool { return behind(rows[i]) })
}

// named is where the row of a lock stands, or would stand, in a list that is sorted by name.
func (l Rows) named(name string) (i int, found bool) {
	i = l.search(func(r *Row) bool { return r.Name >= name })
	return i, i < l.Len() && l.At(i).Name == name
}

func (r *run) last() *Row { return r.rows[len(r.rows)-1] }

// total sums up the rows.
func (r *run) total() *total {
	r.summing.Do(func() {
		for _, row := range r.rows {
			r.sum.counts.add(row)
			r.sum.version += row.Fingerprint
		}
	})
	return &r.sum
}

// total sums up the rows: those of the runs that were in no list before, and the sums of all.
func (l Rows) total() total {
	var all total
	for _, part := range inPieces(len(l.runs), minPiece/runSize, func(from, to int) (part total) {
		for _, r := range l.runs[from:to] {
			part.add(r.total())
		}
		return part
	}) {
		all.add(&part)
	}
	return all
}

func (t *total) add(o *total) {
	t.counts.sum(&o.counts)
	t.version += o.version
}

// builder puts runs together to a list.
type builder struct {
	runs []*run
	few  []*Row // those at the end, too few for a run of their own
}

// keep adds runs of another list.
func (b *builder) keep(runs ...*run) {
	for len(b.few) > 0 && len(runs) > 0 {
		b.put(runs[0].rows)
		runs = runs[1:]
	}
	b.runs = append(b.runs, runs...)
}

// put adds rows in new runs.
func (b *builder) put(rows []*Row) {
	if b.few = slices.Concat(b.few, rows); len(b.few) >= runSize/2 {
		b.flush()
	}
}

func (b *builder) flush() {
	rows := b.few
	b.few = nil
	n := max(1, len(rows)/runSize)
	for i := range n {
		b.runs = append(b.runs, &run{rows: rows[len(rows)*i/n : len(rows)*(i+1)/n]})
	}
}

// list is the list of what was added.
func (b *builder) list() Rows {
	if len(b.few) > 0 {
		b.flush()
	}
	return listOf(b.runs)
}

// indexOf is where the row of a lock stands, or would stand, among rows that are sorted by name.
func indexOf(rows []*Row, name string) (i int, found bool) {
	return slices.BinarySearchFunc(rows, name, func(r *Row, name string) int { return strings.Compare(r.Name, name) })
}
