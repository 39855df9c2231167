package lockview

import (
	"time"
)

// maxSilence is how long the snapshot counts as current without a sign of life from etcd.
const maxSilence = 10 * time.Second

// Freshness is how current the snapshot is.
type Freshness struct {
	// Synced reports whether the snapshot is what etcd holds: it was listed, the watch follows, and etcd was heard from
	// within 10 s.
	Synced bool
	// Revision is the revision that the snapshot shows.
	Revision int64
	// Highest is the highest revision ever seen. If Revision is lower, etcd was restored from an older state, and
	// fencing tokens may repeat.
	Highest int64
	// Heard is when etcd was last heard from; zero = never.
	Heard time.Time
	// Since is when Synced last changed.
	Since time.Time
	// Cause says why the snapshot is not current; empty if it is.
	Cause string
}

// state is what Freshness is made of.
type state struct {
	synced            bool
	revision, highest int64
	heard, since      time.Time
	cause             string
}
