package locks

import (
	"slices"
	"strings"
	"time"

	"github.com/clustermutex/unlocker/internal/compact"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

// block holds the rows of neighbouring locks: a run of the list by name. A snapshot takes over the blocks of the one
// before in which nothing changed. So it costs what changed and, for every other lock, one pointer compared.
type block struct {
	run
	locks    []*compact.Record // of the rows, in their order
	next     time.Time         // when one of the rows changes by itself; zero = never
	troubled []*Row            // those that need a person, or soon will
}

// piece is a block on its way into a snapshot.
type piece struct {
	*block
	making *making // nil: nothing changed, and the block is one of the snapshot before
}

// making is how a block comes into being.
type making struct {
	old        []*Row // those of the snapshot before whose names lie in the block
	came, went []*Row // how the rows differ from these
}

// plan divides locks into the blocks of the next snapshot. Of those that change, the rows are not made yet.
func (s *Snapshot) plan(locks []*compact.Record, changed []bool) []piece {
	pieces := make([]piece, 0, len(s.blocks)+1)
	rest := locks
	for i := 0; i < len(s.blocks); {
		b := s.blocks[i]
		n := len(b.locks)
		last := i+1 == len(s.blocks)
		if !changed[i] && n <= len(rest) && (!last || n == len(rest)) && slices.Equal(rest[:n], b.locks) {
			pieces = append(pieces, piece{block: b})
			rest = rest[n:]
			i++
			continue
		}
		var old []*Row
		taken := 0
		for i < len(s.blocks) && taken < runSize/2 {
			old, i = slices.Concat(old, s.blocks[i].rows), i+1
			if taken = len(rest); i < len(s.blocks) {
				taken = indexOfLock(rest, s.blocks[i].locks[0].Name)
			}
		}
		pieces = appendPieces(pieces, old, rest[:taken])
		rest = rest[taken:]
	}
	return appendPieces(pieces, nil, rest)
}

// appendPieces divides locks, and the old rows of the same part of the names.
func appendPieces(pieces []piece, old []*Row, locks []*compact.Record) []piece {
	if len(locks) == 0 && len(old) == 0 {
		return pieces
	}
	n := max(1, len(locks)/runSize)
	for i := range n {
		from, to := len(locks)*i/n, len(locks)*(i+1)/n
		m := &making{old: old}
		if i+1 < n {
			end, _ := indexOf(old, locks[to].Name)
			m.old, old = old[:end], old[end:]
		}
		// A copy, or the block would keep the list of all locks of its time in memory.
		pieces = append(pieces, piece{&block{locks: slices.Clone(locks[from:to])}, m})
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
func (s *Snapshot) changed(waiting queues, at time.Time) []bool {
	changed := make([]bool, len(s.blocks))
	for i, b := range s.blocks {
		changed[i] = !b.next.IsZero() && !at.Before(b.next)
	}
	mark := func(lock string) {
		if row, found := s.Rows.named(lock); found {
			changed[s.Rows.runAt(row)] = true
		}
		for row, end := s.shares(lock); row < end; row++ {
			changed[s.Rows.runAt(row)] = true
		}
	}
	for lock, now := range waiting.byLock {
		if !now.same(s.waiting.of(lock)) {
			mark(lock)
		}
	}
	for lock := range s.waiting.byLock {
		if waiting.byLock[lock] == nil {
			mark(lock)
		}
	}
	return changed
}

// make makes the rows: the old one of each lock that did not change.
func (p *piece) make(waiting queues, by judging, at staleness.Moment) {
	m := p.making
	old := m.old
	p.rows = make([]*Row, len(p.locks))
	for i, lock := range p.locks {
		for len(old) > 0 && old[0].Name < lock.Name {
			m.went, old = append(m.went, old[0]), old[1:]
		}
		var before *Row
		if len(old) > 0 && old[0].Name == lock.Name {
			before, old = old[0], old[1:]
		}
		r := update(before, lock, waiting, by, at)
		if r != before {
			if m.came = append(m.came, r); before != nil {
				m.went = append(m.went, before)
			}
		}
		p.rows[i] = r
		p.next = Earlier(p.next, r.next)
		if r.Display != Held {
			p.troubled = append(p.troubled, r)
		}
	}
	m.went = append(m.went, old...)
	p.total() // while the rows are in the processor's cache
}
