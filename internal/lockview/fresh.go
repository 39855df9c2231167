package lockview

import (
	"fmt"
	"time"
)

// stale is how long the snapshot counts as current without a sign of life from etcd.
const stale = 10 * time.Second

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

// Fresh returns how current the snapshot is.
func (v *View) Fresh() Freshness {
	v.mu.Lock()
	defer v.mu.Unlock()
	s := v.state
	f := Freshness{Synced: s.synced, Revision: s.revision, Highest: s.highest, Heard: s.heard, Since: s.since,
		Cause: s.cause}
	if quiet := time.Since(s.heard); s.synced && quiet > stale {
		f.Synced = false
		f.Since = s.heard.Add(stale)
		f.Cause = fmt.Sprintf("nothing heard from etcd for %v", quiet.Round(time.Second))
	}
	return f
}

// heard records a sign of life at a revision. The caller holds mu.
func (v *View) heard(revision int64) {
	v.state.heard = time.Now()
	v.state.revision = revision
	v.state.highest = max(v.state.highest, revision)
}

// synced records that the snapshot is current. The caller holds mu.
func (v *View) synced() {
	if !v.state.synced {
		v.state.synced = true
		v.state.since = time.Now()
		v.state.cause = ""
	}
	v.stats.LastSync = time.Now()
}

// lost records that the snapshot is no longer followed. It reports whether that is news: an outage is, each further
// attempt in it is not.
func (v *View) lost(err error) (news bool) {
	cause := v.opt.Explain(err)
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.state.synced {
		v.state.since = time.Now()
	}
	news = v.state.synced || v.state.cause != cause
	v.state.synced, v.state.cause = false, cause
	v.announce()
	return news
}
