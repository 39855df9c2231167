package lockview

import (
	"time"

	"github.com/clustermutex/unlocker/pkg/metadata"
)

// stamp sets the times at which the record was observed, and counts its problems. No reader has seen the record yet.
// live means that the watch reported the step; otherwise a list did. Steps of one revision share now. The caller holds
// mu.
func (v *View) stamp(s *step, now time.Duration, live bool) {
	v.stats.count(s.before.rec, s.after.rec)
	if s.before.rec != nil || s.after.rec != nil {
		v.locks = nil
	}
	if s.after.rec == nil {
		return
	}
	seen := &s.after.rec.Seen
	*seen = metadata.Seen{First: now, Changed: now}
	if live {
		seen.Arrived = max(1, now)
		seen.Followed = max(0, v.state.since.Sub(v.began))
	}
	if s.before.rec == nil || s.replaced() {
		return
	}
	before := s.before.rec.Seen
	seen.First = before.First
	if !s.moved() {
		seen.Changed = before.Changed
	}
	if s.before.rec.Written().Equal(s.after.rec.Written()) {
		seen.Arrived, seen.Followed = before.Arrived, before.Followed
	}
}

// replaced reports whether the hold is a different one than before.
func (s *step) replaced() bool {
	return s.before.rec.Token != s.after.rec.Token || s.before.rec.UUID != s.after.rec.UUID
}

// moved reports whether one of the times changed that package staleness judges a removal by: only a live holder changes
// them. Any other write, such as an attribute or a foreign key in the record's range, must not count, or it could keep
// a dead holder's lock for ever. Neither must rewriting a deadline unchanged: that is no extension.
func (s *step) moved() bool {
	before, after := s.before.rec, s.after.rec
	return !before.AlertAt.Equal(after.AlertAt) || !before.AutoUnlockAt.Equal(after.AutoUnlockAt) ||
		!before.LockedAt.Equal(after.LockedAt) || !aliveAt(before).Equal(aliveAt(after))
}

func aliveAt(r *metadata.Record) (at time.Time) {
	if r.Alive != nil {
		at = r.Alive.At
	}
	return at
}
