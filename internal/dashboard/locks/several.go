package locks

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/clustermutex/unlocker/internal/diagnosis/deadlock"
	"github.com/clustermutex/unlocker/internal/protocol"
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
	m.last = merge(parts, now)
	m.last.results.costly = m.costly
	m.parts = slices.Clone(parts)
	m.rest = now.Add(min(maxRest, buildShare*time.Since(start)))
	return m.last
}

func merge(parts []Part, now time.Time) *Snapshot {
	s := &Snapshot{at: now, frozen: map[string]time.Time{},
		Cycles: sync.OnceValue(func() (all []deadlock.Cycle) {
			for _, p := range parts {
				all = append(all, p.Snapshot.Cycles()...)
			}
			return all
		})}
	lists := make([][]*Row, len(parts))
	for i, p := range parts {
		all := p.Snapshot.All
		if !p.Frozen.IsZero() {
			all.NextUnlock = nil // what comes next there is not known
		}
		s.All.sum(&all)
		if p.Frozen.IsZero() {
			s.Next = protocol.Earlier(s.Next, p.Snapshot.Next)
		} else {
			s.frozen[p.Cluster] = p.Frozen
		}
		s.troubled = append(s.troubled, p.Snapshot.troubled...)
		lists[i] = p.Snapshot.Rows
	}
	s.Rows = mergeRows(lists)
	return s
}

// before is the order of rows in a snapshot: by name, then by cluster.
func before(a, b *Row) int {
	if c := strings.Compare(a.Name, b.Name); c != 0 {
		return c
	}
	return strings.Compare(a.Cluster, b.Cluster)
}

// mergeRows puts lists, each sorted, into one.
func mergeRows(lists [][]*Row) (all []*Row) {
	for {
		first := -1
		for i, rows := range lists {
			if len(rows) > 0 && (first < 0 || before(rows[0], lists[first][0]) < 0) {
				first = i
			}
		}
		if first < 0 {
			return all
		}
		all = append(all, lists[first][0])
		lists[first] = lists[first][1:]
	}
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
