package locks

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/clustermutex/unlocker/internal/deadlock"
)

// Part is the locks of one cluster, for a picture of several.
type Part struct {
	Cluster  string
	Snapshot *Snapshot
	Frozen   time.Time // the moment at which its states hold, where the cluster is away; else zero
}

// Several keeps the newest snapshot of several clusters. It is merged from theirs: who judges locks knows of one
// cluster only, who reads the merged snapshot sees rows that know theirs.
type Several struct {
	costly chan struct{}
	mu     sync.Mutex
	parts  []Part
	last   *Snapshot
	rest   time.Time // no new snapshot before this, but for clusters that go away or come back
}

// NewSeveral returns a place for merged snapshots.
func NewSeveral() *Several { return &Several{costly: make(chan struct{}, maxCostly)} }

// Current returns the locks of all parts. Parts come in the same order each time.
func (m *Several) Current(now time.Time, parts []Part) *Snapshot {
	m.mu.Lock()
	defer m.mu.Unlock()
	same := m.last != nil && slices.EqualFunc(parts, m.parts, func(a, b Part) bool {
		return a.Cluster == b.Cluster && a.Frozen.Equal(b.Frozen)
	})
	rests := same && now.Before(m.rest) && !now.Before(m.last.at)
	if rests || same && slices.EqualFunc(parts, m.parts, func(a, b Part) bool { return a.Snapshot == b.Snapshot }) {
		return m.last
	}
	start := time.Now()
	m.last = merge(m.last, parts, now)
	m.last.results.costly = m.costly
	m.parts = slices.Clone(parts)
	m.rest = now.Add(min(maxRest, buildShare*time.Since(start)))
	return m.last
}

// merge makes one snapshot of several. What was sorted and found in the last one is taken over where little changed.
func merge(last *Snapshot, parts []Part, now time.Time) *Snapshot {
	s := &Snapshot{at: now, frozen: map[string]time.Time{},
		Cycles: sync.OnceValue(func() (all []deadlock.Cycle) {
			for _, p := range parts {
				all = append(all, p.Snapshot.Cycles()...)
			}
			return all
		})}
	s.Worst = sync.OnceValue(func() *Impact { return worstOf(parts) })
	lists := make([]reader, len(parts))
	total := 0
	for i, p := range parts {
		all := p.Snapshot.All
		if !p.Frozen.IsZero() {
			all.NextUnlock = nil // what comes next there is not known
		}
		s.All.sum(&all)
		s.Version += p.Snapshot.Version
		if p.Frozen.IsZero() {
			s.Next = Earlier(s.Next, p.Snapshot.Next)
		} else {
			s.frozen[p.Cluster] = p.Frozen
		}
		s.troubled = append(s.troubled, p.Snapshot.troubled...)
		lists[i] = reader{runs: p.Snapshot.Rows.runs}
		total += p.Snapshot.Rows.Len()
	}
	s.Rows = mergeRows(lists, total)
	if last != nil && sameFrozen(last, s) {
		s.changes = differences(last.Rows, s.Rows)
		s.sorted.before = last.sorted.finished()
		s.results.before = last.results.finished()
	}
	return s
}

// sameFrozen reports whether the same clusters are away in both: else what was found may be as of another time.
func sameFrozen(a, b *Snapshot) bool {
	if len(a.frozen) != len(b.frozen) {
		return false
	}
	for cluster, at := range a.frozen {
		if !b.frozen[cluster].Equal(at) {
			return false
		}
	}
	return true
}

// before is the order of rows in a snapshot: by name, then by cluster.
func before(a, b *Row) int {
	if c := strings.Compare(a.Name, b.Name); c != 0 {
		return c
	}
	return strings.Compare(a.Cluster, b.Cluster)
}

// reader reads a list row by row.
type reader struct {
	runs []*run // those that are not read to their end
	at   int    // the next row, in the first of them
}

// row is the next row, or nil at the end.
func (l *reader) row() *Row {
	if len(l.runs) == 0 {
		return nil
	}
	return l.runs[0].rows[l.at]
}

// next goes on, and returns the row that it leaves behind.
func (l *reader) next() *Row {
	r := l.row()
	if l.at++; l.at == len(l.runs[0].rows) {
		l.runs, l.at = l.runs[1:], 0
	}
	return r
}

// mergeRows puts sorted lists into one.
func mergeRows(lists []reader, total int) Rows {
	out := make([]*Row, 0, total)
	for {
		var first *reader
		for i := range lists {
			if l := &lists[i]; l.row() != nil && (first == nil || before(l.row(), first.row()) < 0) {
				first = l
			}
		}
		if first == nil {
			return rowsOf(out)
		}
		out = append(out, first.next())
	}
}

// differences are the rows that only one of two sorted lists has.
func differences(old, now Rows) changes {
	var came, went []*Row
	was := reader{runs: old.runs}
	is := reader{runs: now.runs}
	for was.row() != nil || is.row() != nil {
		switch a, b := was.row(), is.row(); {
		case a == b:
			was.next()
			is.next()
		case b == nil || a != nil && before(a, b) <= 0:
			went = append(went, was.next())
		default:
			came = append(came, is.next())
		}
	}
	return newChanges(came, went, now.Len())
}

// asOf is the moment that a row is looked at from: now, or when its cluster was last heard.
func (s *Snapshot) asOf(r *Row, now time.Time) time.Time {
	if len(s.frozen) == 0 { // nearly always, and this is asked for each row of a search
		return now
	}
	if at, away := s.frozen[r.Cluster]; away {
		return at
	}
	return now
}
