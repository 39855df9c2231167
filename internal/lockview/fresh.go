package lockview

import (
	"fmt"
	"time"
)

// stale is how long a picture counts as current without anything heard from etcd.
const stale = 10 * time.Second

// Freshness is how current the picture is.
type Freshness struct {
	// Synced tells that the picture is what etcd holds: it was listed, the watch follows, and something was heard
	// within 10 s.
	Synced bool
	// Revision is the revision that the picture shows.
	Revision int64
	// Highest is the highest revision ever seen. When Revision is lower, etcd was restored from an older state, and
	// tokens that were given before may be given again.
	Highest int64
	// Heard is when something was heard from etcd last; zero = never.
	Heard time.Time
	// Since is when Synced became what it is.
	Since time.Time
	// Cause says in words why the picture is not current; empty when it is.
	Cause string
}

// state is what Freshness is made of.
type state struct {
	synced            bool
	revision, highest int64
	heard, since      time.Time
	cause             string
}

// Fresh tells how current the picture is.
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

// hear notes a sign of life at a revision. The caller holds mu.
func (v *View) hear(revision int64) {
	v.state.heard = time.Now()
	v.state.revision = revision
	v.state.highest = max(v.state.highest, revision)
}

// sync notes that the picture is current. The caller holds mu.
func (v *View) sync() {
	if !v.state.synced {
		v.state.synced = true
		v.state.since = time.Now()
		v.state.cause = ""
	}
	v.stats.LastSync = time.Now()
}

// lose notes that the picture is not followed any more, and tells whether that is news: an outage is one, not each
// attempt in it.
func (v *View) lose(err error) (news bool) {
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
