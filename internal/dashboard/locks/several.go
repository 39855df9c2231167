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
	s.Worst = sync.OnceValue(func() *Impact { return s.worstOf(parts) })
	rows := make([][]*Row, len(parts))
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
		rows[i] = p.Snapshot.Rows
		total += len(rows[i])
	}
	s.Rows = mergeRows(rows, total)
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

// mergeRows puts sorted lists into one.
func mergeRows(lists [][]*Row, total int) []*Row {
	out := make([]*Row, 0, total)
	for {
		first := -1
		for i, list := range lists {
			if len(list) > 0 && (first < 0 || before(list[0], lists[first][0]) < 0) {
				first = i
			}
		}
		if first < 0 {
			return out
		}
		out = append(out, lists[first][0])
		lists[first] = lists[first][1:]
	}
}

// differences are the rows that only one of two sorted lists has.
func differences(old, now []*Row) changes {
	var came, went []*Row
	all := len(now)
	for len(old) > 0 && len(now) > 0 {
		if old[0] == now[0] {
			old, now = old[1:], now[1:]
			continue
		}
		switch c := before(old[0], now[0]); {
		case c < 0:
			went, old = append(went, old[0]), old[1:]
		case c > 0:
			came, now = append(came, now[0]), now[1:]
		default:
			went, came = append(went, old[0]), append(came, now[0])
			old, now = old[1:], now[1:]
		}
	}
	return newChanges(append(came, now...), append(went, old...), all)
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
