package lockview

import (
	"time"

	"github.com/clustermutex/unlocker/pkg/metadata"
)

// stamp sets the times at which the record was observed, and counts its problems, before any reader sees the record.
// live means that the watch reported the step, not a list. Steps of one revision share now. The caller holds mu.
func (v *View) stamp(s *step, now time.Duration, live bool) {
	v.stats.count(s.before, s.after)
	if s.before.rec != nil || s.after.rec != nil {
		v.forgetLocks()
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
