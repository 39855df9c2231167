package lockview

import (
	"maps"
	"time"

	"github.com/clustermutex/unlocker/pkg/metadata"
)

// Free returns the locks that nobody holds although somebody waits, with the time since when that has been so, on
// [View.Clock]. A lock with holders of only a part of it is not among them: tickets do not say how much their owners
// want. Neither is a lock in its delay, or one of whose shares is.
//
// followed is since when etcd has been watched without interruption; it is false while it is not.
func (v *View) Free() (since map[string]time.Duration, followed time.Duration, synced bool) {
	synced = v.Fresh().Synced
	v.mu.Lock()
	defer v.mu.Unlock()
	return maps.Clone(v.snap.free), max(0, v.state.since.Sub(v.began)), synced
}

// noteFree notes which of the locks are free after a change of them, or of shares of them, at now. It has to be called
// after every change that can make a difference.
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

// noteAllFree does so for all locks, after a list.
func (s *snapshot) noteAllFree(now time.Duration) {
	for lock := range s.free {
		s.settleFree(lock, now)
	}
	for lock := range s.queues {
		s.settleFree(lock, now)
	}
}

// taken reports whether somebody holds the lock or a part of it, or a delay keeps it from those who wait.
func (s *snapshot) taken(lock string) bool {
	if it, ok := s.locks.get(lock); ok && it.rec.Token != 0 {
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

// any reports whether a record whose name lies from one name to another is one that is looked for.
func (x *index) any(from, end string, is func(*held) bool) bool {
	chunk, pos, _ := x.find(from)
	for ; chunk < len(x.chunks); chunk++ {
		for _, it := range x.chunks[chunk][pos:] {
			switch {
			case it.name() >= end:
				return false
			case is(it.rec):
				return true
			}
		}
		pos = 0
	}
	return false
}
