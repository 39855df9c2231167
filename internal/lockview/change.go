package lockview

import (
	"time"

	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// change is an event on one key of a lock.
type change struct {
	field   string
	foreign bool // a foreign key in the lock's range
	event   *protocol.Event
}

func field(c change) metadata.Field {
	return metadata.Field{
		Name: c.field, Value: string(c.event.Value), CreateRevision: c.event.CreateRevision,
		ModRevision: c.event.ModRevision,
	}
}

// step is what one revision did to one lock. An item without a record means that there is none.
type step struct{ before, after item }

func (s *step) name() string {
	if s.before.rec != nil {
		return s.before.name()
	}
	return s.after.name()
}

// died reports whether the holder was proven to have ended in this step.
func (s *step) died() bool {
	before, after := s.before.rec, s.after.rec
	return after != nil && after.Proven() && (before == nil || before.Death != after.Death)
}

// ended returns the hold that ended in this step, or nil.
func (s *step) ended() *held {
	if s.before.rec == nil || s.before.rec.Token == 0 || s.after.rec != nil && !s.replaced() {
		return nil
	}
	return s.before.rec
}

// began returns the hold that began in this step, or nil.
func (s *step) began() *held {
	if s.after.rec == nil || s.after.rec.Token == 0 || s.before.rec != nil && !s.replaced() {
		return nil
	}
	return s.after.rec
}

// replaced reports whether the hold is a different one than before.
func (s *step) replaced() bool {
	return s.before.rec.Token != s.after.rec.Token || s.before.rec.UUID != s.after.rec.UUID
}

// moved reports whether a time changed by which package staleness judges a removal; only a live holder changes those.
// Any other write, such as an attribute or a foreign key in the record's range, must not count, or it could keep a dead
// holder's lock forever. Neither must rewriting a deadline unchanged: that is no extension.
func (s *step) moved() bool {
	before, after := s.before.rec, s.after.rec
	return !before.AlertAt.Equal(after.AlertAt) || !before.AutoUnlockAt.Equal(after.AutoUnlockAt) ||
		!before.LockedAt.Equal(after.LockedAt) || !aliveAt(before).Equal(aliveAt(after))
}

func aliveAt(r *held) (at time.Time) {
	if r.Alive != nil {
		at = r.Alive.At
	}
	return at
}
