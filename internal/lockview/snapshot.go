package lockview

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// snapshot is the part of etcd's contents at one revision that the view keeps.
type snapshot struct {
	layout protocol.Layout

	locks      index
	queues     queues
	unlockers  map[string]unlocker
	statements statements
	delays     map[string]metadata.LockDelay // by lock or share
	free       map[string]time.Duration      // locks with a queue but without a holder, and since when

	foreign   foreignKeys
	misplaced misplacedRecords
}

func newSnapshot(l protocol.Layout) *snapshot {
	return &snapshot{
		layout: l, queues: queues{}, unlockers: map[string]unlocker{},
		statements: statements{byKey: map[protocol.Key]*metadata.Statement{}},
		delays:     map[string]metadata.LockDelay{}, free: map[string]time.Duration{},
		foreign:   foreignKeys{sample: map[string]bool{}, others: map[string]bool{}, in: map[string]int{}},
		misplaced: misplacedRecords{layout: l, byPrefix: map[string]*misplaced{}},
	}
}

// decode returns a lock with these keys. Foreign keys in its range are a problem of the record.
func (s *snapshot) decode(name string, k keys) *held {
	name = strings.Clone(name)
	h := &held{Record: k.record(name), keys: k}
	if n, has := s.foreign.in[name]; has {
		h.Problems = append(h.Problems, foreignProblem(n))
	}
	return h
}

// assumeForeign notes a lock that may have foreign keys in its range, because too many locks have.
func (s *snapshot) assumeForeign(name string) {
	if _, known := s.foreign.in[name]; s.foreign.overflow && !known {
		s.foreign.in[name] = 0
	}
}

func foreignProblem(n int) metadata.Problem {
	text := "its range may hold foreign keys"
	if n > 0 {
		text = fmt.Sprintf("%d foreign keys in its range, which auto-unlock and force unlock leave alone", n)
	}
	return metadata.Problem{Field: "record", Kind: metadata.ProblemUnknownLayout, Text: text}
}

// lockChange is the effect of one revision on one lock: before or after is nil while it is not held.
type lockChange struct{ before, after *held }

func (c *lockChange) name() string {
	if c.before != nil {
		return c.before.Name
	}
	return c.after.Name
}

// died reports whether the holder was proven to have ended.
func (c *lockChange) died() bool {
	before, after := c.before, c.after
	return after != nil && after.ProvenDead() && (before == nil || before.Death != after.Death)
}

// ended returns the hold that ended, or nil.
func (c *lockChange) ended() *held {
	if c.before == nil || c.before.Token == 0 || c.after != nil && !c.replaced() {
		return nil
	}
	return c.before
}

// began returns the hold that began, or nil.
func (c *lockChange) began() *held {
	if c.after == nil || c.after.Token == 0 || c.before != nil && !c.replaced() {
		return nil
	}
	return c.after
}

// replaced reports whether the hold is a different one than before.
func (c *lockChange) replaced() bool {
	return c.before.Token != c.after.Token || c.before.UUID != c.after.UUID
}

// deadlinesChanged reports whether a time changed by which package staleness judges a removal; only a live holder
// changes those. Any other write, such as an attribute or a foreign key in the record's range, must not count, or it
// could keep a dead holder's lock forever. Rewriting a deadline unchanged must not count either: it is not an
// extension.
func (c *lockChange) deadlinesChanged() bool {
	before, after := c.before, c.after
	return !before.AlertAt.Equal(after.AlertAt) || !before.AutoUnlockAt.Equal(after.AutoUnlockAt) ||
		!before.LockedAt.Equal(after.LockedAt) || !aliveAt(before).Equal(aliveAt(after))
}

func aliveAt(r *held) (at time.Time) {
	if r.Alive != nil {
		at = r.Alive.At
	}
	return at
}

// updateFree recomputes which of these locks are free, after a change of them or of their shares at now. Call it after
// every change that can make a difference.
func (s *snapshot) updateFree(names []string, now time.Duration) {
	for _, name := range names {
		s.updateFreeLock(name, now)
		if lock, _, ok := metadata.ParseShare(name); ok {
			s.updateFreeLock(lock, now)
		}
	}
}

func (s *snapshot) updateFreeLock(lock string, now time.Duration) {
	_, known := s.free[lock]
	switch free := s.queues[lock] != nil && !s.isTaken(lock); {
	case !free:
		delete(s.free, lock)
	case !known:
		s.free[lock] = now
	}
}

// updateAllFree recomputes which locks are free, after a list.
func (s *snapshot) updateAllFree(now time.Duration) {
	for lock := range s.free {
		s.updateFreeLock(lock, now)
	}
	for lock := range s.queues {
		s.updateFreeLock(lock, now)
	}
}

// isTaken reports whether the lock or a share of it is held, or a delay keeps waiters from taking it.
func (s *snapshot) isTaken(lock string) bool {
	if h := s.locks.get(lock); h != nil && h.Token != 0 {
		return true
	}
	if _, delayed := s.delays[lock]; delayed {
		return true
	}
	for name := range s.delays {
		if base, _, ok := metadata.ParseShare(name); ok && base == lock {
			return true
		}
	}
	first, _ := s.locks.find(lock + "#1")
	last, _ := s.locks.find(lock + "#:") // ":" follows "9"
	return slices.ContainsFunc(s.locks[first:last], func(r *held) bool {
		base, _, ok := metadata.ParseShare(r.Name)
		return ok && base == lock && r.Token != 0
	})
}

// applyStatement applies an event on a statement, and returns the locks that the old and the new one are about.
func (s *snapshot) applyStatement(key protocol.Key, st *metadata.Statement) (locks []string) {
	all := s.statements.byKey
	if before := all[key]; before != nil {
		locks = append(locks, before.Name)
	}
	delete(all, key)
	if st == nil {
		return locks
	}
	if s.statements.maybeUnmatched++; s.statements.maybeUnmatched > maxUnmatched {
		s.dropUnmatched()
	}
	all[key] = st
	return append(locks, st.Name)
}

// dropUnmatched drops the statements that are not about a held lock.
func (s *snapshot) dropUnmatched() {
	s.statements.maybeUnmatched = 0
	maps.DeleteFunc(s.statements.byKey, func(_ protocol.Key, st *metadata.Statement) bool {
		h := s.locks.get(st.Name)
		return h == nil || h.Death != st && h.Suspicion != st
	})
}

// attachStatements attaches the statements about its hold to a record that no reader has seen yet.
func (s *snapshot) attachStatements(h *held) {
	all := s.statements.byKey
	lockrecord.AttachStatements(&h.Record, all[protocol.Key{Kind: protocol.KindDeath, ID: h.UUID}],
		all[protocol.Key{Kind: protocol.KindSuspicion, ID: h.UUID}])
}

// updateStatements replaces a lock whose statements have changed; changed is false if they have not.
func (s *snapshot) updateStatements(name string) (c lockChange, changed bool) {
	before := s.locks.get(name)
	if before == nil {
		return lockChange{}, false
	}
	after := &held{Record: before.Record, keys: before.keys}
	s.attachStatements(after)
	if after.Death == before.Death && after.Suspicion == before.Suspicion {
		return lockChange{}, false
	}
	s.locks.put(after)
	return lockChange{before, after}, true
}

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
