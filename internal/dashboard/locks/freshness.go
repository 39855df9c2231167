package locks

import (
	"cmp"
	"time"

	"github.com/clustermutex/unlocker/internal/dashboard/phrase"
)

// Freshness says how current the snapshot of the locks is.
type Freshness struct {
	Synced   bool      // the watch runs
	Revision int64     // of etcd, as of the snapshot
	Heard    time.Time // last sign of life of etcd; zero: the locks were never loaded
	Since    time.Time // when Synced last changed
	Class    string    // what kind of thing keeps it from being synced, in a word or two; for every page
	Cause    string    // the same as a sentence, which may name addresses; for the status page
}

// How old the last sign of life of etcd may be.
const (
	delayedAfter = 10 * time.Second
	staleAfter   = 30 * time.Second
)

// Level is how far the snapshot can be trusted; the words are shown and are classes in the style sheet.
type Level string

const (
	Live    Level = "live"
	delayed Level = "delayed"
	Stale   Level = "stale"
	Never   Level = "never" // nothing was ever loaded
)

// Level judges how current the snapshot is. A watch that is just being opened again is not stale by itself: only
// silence is.
func (f Freshness) Level(now time.Time) Level {
	switch age := f.age(now); {
	case f.Heard.IsZero():
		return Never
	case age > staleAfter:
		return Stale
	case age > delayedAfter:
		return delayed
	}
	return Live
}

// Viewpoint is the point in time from which the snapshot is shown.
func (f Freshness) Viewpoint(now time.Time) phrase.Viewpoint {
	if f.Level(now) == Stale {
		return phrase.StaleAt(now, f.Heard)
	}
	return phrase.LiveAt(now)
}

// age is how long ago etcd was heard; never negative.
func (f Freshness) age(now time.Time) time.Duration { return max(0, now.Sub(f.Heard)) }

// Reason is why nothing was ever loaded: help with a wrong setup.
func (f Freshness) Reason() string { return cmp.Or(f.Cause, "no answer") }

// Why is what follows "etcd unreachable since …": the kind of trouble, where it says more than that.
func (f Freshness) Why() string {
	switch f.Class {
	case "unreachable":
		return ""
	case "":
		return ": no answer"
	}
	return ": " + f.Class
}
