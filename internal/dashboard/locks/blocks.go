package locks

import (
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/clustermutex/unlocker/internal/compact"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

// blockSize is how many rows a new block has. Larger blocks cost more where locks change, smaller ones where none do.
const blockSize = 256

// block holds the rows of neighbouring locks, and what they add up to. A snapshot takes over the blocks of the one
// before in which nothing changed. So it costs what changed and, for every other lock, one pointer compared and copied.
type block struct {
	locks    []*compact.Record
	rows     []*Row // of the locks, in their order
	all      Counts
	next     time.Time // when one of the rows changes by itself; zero = never
	version  uint64    // a sum, so that it does not depend on the blocks
	troubled []*Row    // those that need a person, or soon will
}

// piece is a block on its way into a snapshot.
type piece struct {
	block
	kept       bool   // nothing changed: the block is one of the snapshot before
	old        []*Row // those of the snapshot before whose names lie in the block
	came, went []*Row // how the rows differ from these
}

// plan divides locks into the blocks of the next snapshot. Of those that change, the rows are not made yet.
func (s *Snapshot) plan(locks []*compact.Record, changed []bool) []piece {
	pieces := make([]piece, 0, len(s.blocks)+1)
	row := 0 // of s, where the next block begins
	rest := locks
	for i := 0; i < len(s.blocks); {
		b := &s.blocks[i]
		n := len(b.locks)
		last := i+1 == len(s.blocks)
		if !changed[i] && n <= len(rest) && (!last || n == len(rest)) && slices.Equal(rest[:n], b.locks) {
			pieces = append(pieces, piece{block: *b, kept: true})
			row, rest = row+n, rest[n:]
			i++
			continue
		}
		from, taken := row, 0
		for i < len(s.blocks) && taken < blockSize/2 {
			row, i = row+len(s.blocks[i].rows), i+1
			if taken = len(rest); i < len(s.blocks) {
				taken = indexOfLock(rest, s.blocks[i].locks[0].Name)
			}
		}
		pieces = appendPieces(pieces, s.Rows[from:row], rest[:taken])
		rest = rest[taken:]
	}
	return appendPieces(pieces, nil, rest)
}

// appendPieces divides locks, and the old rows of the same part of the names.
func appendPieces(pieces []piece, old []*Row, locks []*compact.Record) []piece {
	if len(locks) == 0 && len(old) == 0 {
		return pieces
	}
	n := max(1, len(locks)/blockSize)
	for i := range n {
		from, to := len(locks)*i/n, len(locks)*(i+1)/n
		p := piece{old: old}
		p.locks = locks[from:to]
		if i+1 < n {
			end, _ := indexOf(old, locks[to].Name)
			p.old, old = old[:end], old[end:]
		}
		pieces = append(pieces, p)
	}
	return pieces
}

// indexOfLock is where a lock stands, or would stand, among locks that are sorted by name.
func indexOfLock(locks []*compact.Record, name string) int {
	i, _ := slices.BinarySearchFunc(locks, name, func(r *compact.Record, name string) int {
		return strings.Compare(r.Name, name)
	})
	return i
}

// changed reports for each block whether a row in it changes although its lock does not: because its queue does, or
// because its state changes by itself before that moment.
func (s *Snapshot) changed(waiting map[string]Queue, at time.Time) []bool {
	changed := make([]bool, len(s.blocks))
	ends := make([]int, len(s.blocks))
	end := 0
	for i := range s.blocks {
		b := &s.blocks[i]
		end += len(b.rows)
		ends[i] = end
		changed[i] = !b.next.IsZero() && !at.Before(b.next)
	}
	mark := func(lock string) {
		if row, found := indexOf(s.Rows, lock); found {
			changed[sort.SearchInts(ends, row+1)] = true
		}
		for row, end := s.shares(lock); row < end; row++ {
			changed[sort.SearchInts(ends, row+1)] = true
		}
	}
	for lock, now := range waiting {
		if !now.same(s.waiting[lock]) {
			mark(lock)
		}
	}
	for lock := range s.waiting {
		if _, still := waiting[lock]; !still {
			mark(lock)
		}
	}
	return changed
}

// build makes the rows: the old one of each lock that did not change.
func (p *piece) build(waiting map[string]Queue, from *Source, at staleness.Moment) {
	old := p.old
	for i, lock := range p.locks {
		for len(old) > 0 && old[0].Name < lock.Name {
			p.went, old = append(p.went, old[0]), old[1:]
		}
		var before *Row
		if len(old) > 0 && old[0].Name == lock.Name {
			before, old = old[0], old[1:]
		}
		r := update(before, lock, waiting, from, at)
		if r != before {
			if p.came = append(p.came, r); before != nil {
				p.went = append(p.went, before)
			}
		}
		p.rows[i] = r
		p.all.add(r)
		p.version += r.Fingerprint
		p.next = Earlier(p.next, r.next)
		if r.Display.Troubled() {
			p.troubled = append(p.troubled, r)
		}
	}
	p.went = append(p.went, old...)
}
