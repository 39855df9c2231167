package protocol

import (
	"time"

	"github.com/clustermutex/unlocker/pkg/metadata"
)

// Freshness is how current a view of the locks is.
type Freshness struct {
	// Synced reports whether the view is what etcd holds: it was listed, the watch follows, and etcd was heard from of
	// late.
	Synced bool
	// Revision is the revision that the view shows.
	Revision int64
	// First is the revision of the first list; 0 before it.
	First int64
	// Highest is the highest revision ever seen. If Revision is lower, etcd was restored from an older state, and
	// fencing tokens may repeat.
	Highest int64
	Heard   time.Time     // when etcd was last heard from; zero = never
	Pulse   time.Duration // how often etcd gives a sign of life while it is well; 0 = its silence says nothing
	Since   time.Time     // when Synced last changed
	Class   string        // what kind of thing keeps it from being synced, in a word or two; for everybody
	Cause   string        // the same as a sentence, which may name addresses; empty if it is synced
}

// Unlocker is a running unlocker.
type Unlocker struct {
	metadata.Presence
	// Arrived is when its record arrived, by our wall clock. It is zero for a record read in a list, whose age is
	// unknown.
	Arrived time.Time
}
