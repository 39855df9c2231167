package locks

import (
	"slices"
	"strconv"
	"time"

	"github.com/cespare/xxhash/v2"
)

// recentlyAlive is how long ago a holder was alive at most if its hold is left out.
const recentlyAlive = time.Minute

// ToEnd are the holds that an operator ends in one action, for example all of a machine that is gone.
type ToEnd struct {
	Rows    []*Row // as they were shown
	LeftOut int    // holds whose holders were alive within the last minute
}

// ChooseToEnd chooses among the rows that a query finds. It leaves out what is no hold and, unless evenAlive is set,
// the holds of holders that were alive recently.
func ChooseToEnd(found []*Row, evenAlive bool, now time.Time) ToEnd {
	holds := slices.DeleteFunc(slices.Clone(found), func(r *Row) bool {
		return r.Token == 0 || r.Misplaced || r.Leased != nil
	})
	if evenAlive {
		return ToEnd{Rows: holds}
	}
	n := len(holds)
	chosen := slices.DeleteFunc(holds, func(r *Row) bool { return r.isAlive(now) })
	return ToEnd{Rows: chosen, LeftOut: n - len(chosen)}
}

// HoldID identifies the hold of the lock in a few bytes. It is the same in every replica.
func (r *Row) HoldID() string {
	return strconv.FormatUint(Hash(xxhash.Sum64String(r.Name), xxhash.Sum64String(r.UUID), uint64(r.Token)), 36)
}

// isAlive reports whether the holder was alive recently, by its own clock, and is not proven to have ended since.
func (r *Row) isAlive(now time.Time) bool {
	at := r.LastAlive()
	return !r.ProvenDead() && !at.IsZero() && now.Sub(at) < recentlyAlive
}

// LastAlive is when the holder last called alive, or else took the lock; zero = unknown.
func (r *Row) LastAlive() time.Time {
	if r.Alive != nil && r.Alive.At.After(r.LockedAt) {
		return r.Alive.At
	}
	return r.LockedAt
}
