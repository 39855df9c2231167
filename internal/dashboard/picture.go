package dashboard

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

// snapshot is all locks as they stood at one moment. It is immutable but for its cache of results.
type snapshot struct {
	rows    []*row // by name
	all     counts
	at      time.Time // the moment at which the states hold
	next    time.Time // when a state changes by itself; zero = never
	locks   []*metadata.Record
	queues  uint64  // fingerprint of the waiters
	version uint64  // changes with anything that a list shows
	changes changes // since the snapshot before
	results results
	sorted  sortings
}

// find returns the lock with this name, or nil.
func (s *snapshot) find(name string) *row {
	i, ok := slices.BinarySearchFunc(s.rows, name,
		func(r *row, name string) int { return strings.Compare(r.Name, name) })
	if !ok {
		return nil
	}
	return s.rows[i]
}

// picture keeps the newest snapshot. Building one costs in proportion to the locks, so it is built when it is asked for
// and something changed, by one request at a time, and never so often that building takes more than a share of the
// time.
type picture struct {
	config *Config
	mu     sync.Mutex
	last   *snapshot
	frozen bool      // the last one is of the past: the picture is stale
	rest   time.Time // no new snapshot before this
	costly chan struct{}
}

const (
	buildShare = 20          // building may take this part of the time
	maxRest    = time.Second // but a snapshot is never older than this
)

// snapshot returns the locks as they stand now. While etcd is silent the states stay as they were last known for sure.
func (p *picture) snapshot() *snapshot {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.config.Now()
	at := p.moment(now)
	frozen := !at.Wall.Equal(now)
	if p.last != nil && now.Before(p.rest) && !now.Before(p.last.at) && frozen == p.frozen {
		return p.last
	}
	locks, queues, queued := p.input()
	if p.last != nil && p.last.current(locks, queued, at.Wall) {
		return p.last
	}
	start := time.Now()
	p.last = build(p.last, locks, queues, p.config.Policy, at)
	p.last.queues, p.last.results.costly = queued, p.costly
	p.frozen = frozen
	p.rest = now.Add(min(maxRest, buildShare*time.Since(start)))
	return p.last
}

// moment is now, or the last sign of life of etcd where the picture is stale: what became of the locks since then is
// not known.
func (p *picture) moment(now time.Time) staleness.Moment {
	at := staleness.Moment{Wall: now, Mono: p.config.Clock()}
	if fresh := p.config.Fresh(); fresh.level(now) == stale {
		at.Mono -= now.Sub(fresh.Heard)
		at.Wall = fresh.Heard
	}
	return at
}

func (p *picture) input() (locks []*metadata.Record, queues map[string][]metadata.Waiter, queued uint64) {
	locks = p.config.Locks()
	if p.config.Queues == nil {
		return locks, nil, 0
	}
	queues = p.config.Queues()
	for lock, queue := range queues { // in any order, so the fingerprint is a sum
		h := fnv(fnvStart, uint64(len(lock)), uint64(len(queue)))
		for _, w := range queue {
			h = fnv(h, uint64(w.Place))
		}
		queued += h
	}
	return locks, queues, queued
}

// current tells whether a snapshot built now would be the same.
func (s *snapshot) current(locks []*metadata.Record, queued uint64, at time.Time) bool {
	same := len(locks) == len(s.locks) && (len(locks) == 0 || &locks[0] == &s.locks[0])
	return same && queued == s.queues && (s.next.IsZero() || at.Before(s.next)) && !at.Before(s.at)
}

// build makes a snapshot. Rows of the last one that did not change are taken over, and so is how they were sorted and
// found.
func build(last *snapshot, locks []*metadata.Record, queues map[string][]metadata.Waiter, p staleness.Policy,
	at staleness.Moment) *snapshot {
	s := &snapshot{rows: make([]*row, len(locks)), at: at.Wall, locks: locks}
	var old []*row
	if last != nil && !at.Wall.Before(last.at) {
		old = last.rows
		s.sorted.before = last.sorted.finished()
		s.results.before = last.results.finished()
	}
	lines := make(map[string]line, len(queues))
	for lock, queue := range queues {
		lines[lock] = lineOf(queue)
	}
	var came, went []*row
	for _, b := range inPieces(len(locks), func(from, to int) built {
		b := built{rows: s.rows[from:to]}
		b.build(within(old, locks, from, to), locks[from:to], lines, p, at)
		return b
	}) {
		s.all.sum(&b.all)
		s.version += b.version
		s.next = first(s.next, b.next)
		came, went = append(came, b.came...), append(went, b.went...)
	}
	s.changes = newChanges(came, went, len(locks))
	return s
}

// within are the old rows whose names lie from one lock to another.
func within(old []*row, locks []*metadata.Record, from, to int) []*row {
	place := func(i, end int) int {
		if i == 0 || i == len(locks) {
			return end
		}
		at, _ := slices.BinarySearchFunc(old, locks[i].Name,
			func(r *row, name string) int { return strings.Compare(r.Name, name) })
		return at
	}
	return old[place(from, 0):place(to, len(old))]
}

// built is a piece of a snapshot.
type built struct {
	rows       []*row
	all        counts
	next       time.Time
	version    uint64 // a sum, so that it does not depend on the pieces
	came, went []*row
}

func (b *built) build(old []*row, locks []*metadata.Record, lines map[string]line, p staleness.Policy,
	at staleness.Moment) {
	for i, lock := range locks {
		for len(old) > 0 && old[0].Name < lock.Name {
			b.went, old = append(b.went, old[0]), old[1:]
		}
		var before *row
		if len(old) > 0 && old[0].Name == lock.Name {
			before, old = old[0], old[1:]
		}
		r := update(before, lock, lines, p, at)
		if r != before {
			if b.came = append(b.came, r); before != nil {
				b.went = append(b.went, before)
			}
		}
		b.rows[i] = r
		b.all.add(r)
		b.version += r.mix
		b.next = first(b.next, r.next)
	}
	b.went = append(b.went, old...)
}

// update returns the row of the lock: the one before if nothing changed.
func update(before *row, lock *metadata.Record, lines map[string]line, p staleness.Policy, at staleness.Moment) *row {
	if before == nil || before.Record != lock {
		return newRow(lock, p, at, lines[shareOf(lock).queue(lock.Name)], before)
	}
	now := lines[before.share.queue(lock.Name)]
	same := now.waiters == before.waiters && now.longest.Equal(before.longest)
	if same && (before.next.IsZero() || at.Wall.Before(before.next)) {
		return before
	}
	r := *before
	r.line = now
	r.judge(p, at)
	return &r
}

// counts sums up locks. Expiring ones are also counted by their state.
type counts struct {
	Total, Held, Alerting, Expiring, Expired, Malformed int
	Waiting                                             int       // waiters
	Longest                                             time.Time // since when the longest waiter waits
	Oldest                                              time.Time // first locked_at
	// alerting or expiring, and the first to be auto-unlocked
	NextUnlock *row
	// waiters by the lock that several hold, so that they count once
	lines map[string]int
}

func (c *counts) add(r *row) {
	c.Total++
	switch r.verdict.State {
	case staleness.Held:
		c.Held++
	case staleness.Alerting:
		c.Alerting++
	case staleness.Expired:
		c.Expired++
	case staleness.Malformed:
		c.Malformed++
	}
	if r.look == expiring {
		c.Expiring++
	}
	if r.share == nil || r.share.lock == "" {
		c.Waiting += r.waiters
	} else if r.waiters > 0 {
		c.addLine(r.share.lock, r.waiters)
	}
	c.Longest = first(c.Longest, r.longest)
	c.Oldest = first(c.Oldest, r.LockedAt)
	if (r.look == alerting || r.look == expiring) && !r.verdict.AutoUnlockAt.IsZero() {
		c.soonest(r)
	}
}

// sum adds the counts of other locks.
func (c *counts) sum(o *counts) {
	c.Total, c.Held, c.Alerting, c.Expiring = c.Total+o.Total, c.Held+o.Held, c.Alerting+o.Alerting, c.Expiring+
		o.Expiring
	c.Expired, c.Malformed, c.Waiting = c.Expired+o.Expired, c.Malformed+o.Malformed, c.Waiting+o.Waiting
	for lock, waiters := range o.lines {
		c.Waiting -= waiters // which are in o.Waiting
		c.addLine(lock, waiters)
	}
	c.Longest, c.Oldest = first(c.Longest, o.Longest), first(c.Oldest, o.Oldest)
	c.soonest(o.NextUnlock)
}

// addLine counts a line before a lock that several hold.
func (c *counts) addLine(lock string, waiters int) {
	if _, counted := c.lines[lock]; counted {
		return
	}
	if c.lines == nil {
		c.lines = map[string]int{}
	}
	c.lines[lock] = waiters
	c.Waiting += waiters
}

// soonest notes the row if it is the next to be auto-unlocked.
func (c *counts) soonest(r *row) {
	if r != nil && (c.NextUnlock == nil || r.verdict.AutoUnlockAt.Before(c.NextUnlock.verdict.AutoUnlockAt)) {
		c.NextUnlock = r
	}
}

// first is the earlier of two instants, of which zero ones do not count.
func first(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
