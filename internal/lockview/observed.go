package lockview

import (
	"time"

	"github.com/clustermutex/unlocker/pkg/metadata"
)

// stamp dates the record and counts what is wrong with it. Nobody has seen the record yet. Live tells that the watch
// told of the step; else a list did. What was told together gets the same time now. The caller holds mu.
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

// replaced tells whether there is another hold than before.
func (s *step) replaced() bool {
	return s.before.rec.Token != s.after.rec.Token || s.before.rec.UUID != s.after.rec.UUID
}

// moved tells whether one of the times changed by which a removal is judged (package staleness): that is what a holder
// that lives does. Any other write, such as of an attribute or of a foreign key in the record's range, must not count,
// or whoever writes it now and then would keep the lock of a dead holder for ever. So must not a deadline written again
// as it is: that is no extension.
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
