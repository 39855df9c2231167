package lockview

import (
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// snapshot is the part of etcd's contents at one revision that the view keeps.
type snapshot struct {
	layout protocol.Layout

	locks     index
	queues    queues
	unlockers map[string]unlocker
	stated    statements
	delays    map[string]metadata.LockDelay // by lock or share
	free      map[string]time.Duration      // locks with a queue but without a holder, and since when

	foreign   foreignKeys
	misplaced misplacedRecords
}

func newSnapshot(l protocol.Layout) *snapshot {
	return &snapshot{
		layout: l, queues: queues{}, unlockers: map[string]unlocker{},
		stated: newStatements(), delays: map[string]metadata.LockDelay{}, free: map[string]time.Duration{},
		foreign:   foreignKeys{sample: map[string]bool{}, in: map[string]int{}},
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

// step is the effect of one revision on one lock. Without a lock before or after, that is nil.
type step struct{ before, after *held }

func (s *step) name() string {
	if s.before != nil {
		return s.before.Name
	}
	return s.after.Name
}

// died reports whether the holder was proven to have ended in this step.
func (s *step) died() bool {
	before, after := s.before, s.after
	return after != nil && after.ProvenDead() && (before == nil || before.Death != after.Death)
}

// ended returns the hold that ended in this step, or nil.
func (s *step) ended() *held {
	if s.before == nil || s.before.Token == 0 || s.after != nil && !s.replaced() {
		return nil
	}
	return s.before
}

// began returns the hold that began in this step, or nil.
func (s *step) began() *held {
	if s.after == nil || s.after.Token == 0 || s.before != nil && !s.replaced() {
		return nil
	}
	return s.after
}

// replaced reports whether the hold is a different one than before.
func (s *step) replaced() bool {
	return s.before.Token != s.after.Token || s.before.UUID != s.after.UUID
}

// moved reports whether a time changed by which package staleness judges a removal; only a live holder changes those.
// Any other write, such as an attribute or a foreign key in the record's range, must not count, or it could keep a dead
// holder's lock forever. Rewriting a deadline unchanged must not count either: it is not an extension.
func (s *step) moved() bool {
	before, after := s.before, s.after
	return !before.AlertAt.Equal(after.AlertAt) || !before.AutoUnlockAt.Equal(after.AutoUnlockAt) ||
		!before.LockedAt.Equal(after.LockedAt) || !aliveAt(before).Equal(aliveAt(after))
}

func aliveAt(r *held) (at time.Time) {
	if r.Alive != nil {
		at = r.Alive.At
	}
	return at
}

// noteFree notes which of the locks are free after a change of them, or of their shares, at now. Call it after every
// change that can make a difference.
func (s *snapshot) noteFree(names []string, now time.Duration) {
	for _, name := range names {
		s.settleFree(name, now)
		if lock, _, ok := metadata.ParseShare(name); ok {
			s.settleFree(lock, now)
		}
	}
}

func (s *snapshot) settleFree(lock string, now time.Duration) {
	_, known := s.free[lock]
	switch free := s.queues[lock] != nil && !s.taken(lock); {
	case !free:
		delete(s.free, lock)
	case !known:
		s.free[lock] = now
	}
}

// noteAllFree does the same for all locks, after a list.
func (s *snapshot) noteAllFree(now time.Duration) {
	for lock := range s.free {
		s.settleFree(lock, now)
	}
	for lock := range s.queues {
		s.settleFree(lock, now)
	}
}

// taken reports whether the lock or a share of it is held, or a delay keeps waiters from taking it.
func (s *snapshot) taken(lock string) bool {
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
	return s.locks.any(lock+"#1", lock+"#:", func(r *held) bool { // ":" follows "9"
		base, _, ok := metadata.ParseShare(r.Name)
		return ok && base == lock && r.Token != 0
	})
}

// applyStatement applies an event on a statement, and returns the locks that the old and the new one are about.
func (s *snapshot) applyStatement(key protocol.Key, st *metadata.Statement) (locks []string) {
	all := s.stated.of(key)
	if before := all[key.ID]; before != nil {
		locks = append(locks, before.Name)
	}
	delete(all, key.ID)
	if st == nil {
		return locks
	}
	if s.stated.loose++; s.stated.loose > maxLoose {
		s.dropLoose()
	}
	all[key.ID] = st
	return append(locks, st.Name)
}

// dropLoose forgets the statements that are not about a held lock.
func (s *snapshot) dropLoose() {
	s.stated.loose = 0
	loose := func(_ string, st *metadata.Statement) bool { return s.isLoose(st) }
	maps.DeleteFunc(s.stated.deaths, loose)
	maps.DeleteFunc(s.stated.suspicions, loose)
}

func (s *snapshot) isLoose(st *metadata.Statement) bool {
	h := s.locks.get(st.Name)
	return h == nil || h.Death != st && h.Suspicion != st
}

// boundLoose counts the statements that are not about a held lock, and forgets them if there are too many.
func (s *snapshot) boundLoose() {
	s.stated.loose = 0
	for _, all := range []map[string]*metadata.Statement{s.stated.deaths, s.stated.suspicions} {
		for _, st := range all {
			if s.isLoose(st) {
				s.stated.loose++
			}
		}
	}
	if s.stated.loose > maxLoose {
		s.dropLoose()
	}
}

// heed attaches the statements about its hold to a record that no reader has seen yet.
func (s *snapshot) heed(h *held) {
	if len(s.stated.deaths)+len(s.stated.suspicions) == 0 {
		return
	}
	lockrecord.AttachStatements(&h.Record, s.stated.deaths[h.UUID], s.stated.suspicions[h.UUID])
}

// restate attaches the current statements to a lock; ok reports whether they changed.
func (s *snapshot) restate(name string) (told step, ok bool) {
	before := s.locks.get(name)
	if before == nil {
		return step{}, false
	}
	after := &held{Record: before.Record, keys: before.keys}
	lockrecord.AttachStatements(&after.Record, s.stated.deaths[after.UUID], s.stated.suspicions[after.UUID])
	if after.Death == before.Death && after.Suspicion == before.Suspicion {
		return step{}, false
	}
	s.locks.put(after)
	return step{before, after}, true
}
