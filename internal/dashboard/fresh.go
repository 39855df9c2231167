package dashboard

import (
	"cmp"
	"time"

	"github.com/clustermutex/unlocker/internal/dashboard/phrase"
)

// How old the last sign of life of etcd may be.
const (
	delayedAfter = 10 * time.Second
	staleAfter   = 30 * time.Second
)

// freshness is how far the picture can be trusted; the words are shown and are classes in the style sheet.
type freshness string

const (
	live    freshness = "live"
	delayed freshness = "delayed"
	stale   freshness = "stale"
	never   freshness = "never" // nothing was ever loaded
)

// level judges how current the picture is. A watch that is just being opened again is not stale by itself: only silence
// is.
func (f Freshness) level(now time.Time) freshness {
	switch age := f.age(now); {
	case f.Heard.IsZero():
		return never
	case age > staleAfter:
		return stale
	case age > delayedAfter:
		return delayed
	}
	return live
}

// viewpoint is the point in time from which the picture is shown.
func (f Freshness) viewpoint(now time.Time) phrase.Viewpoint {
	if f.level(now) == stale {
		return phrase.StaleAt(now, f.Heard)
	}
	return phrase.LiveAt(now)
}

// age is how long ago etcd was heard; never negative.
func (f Freshness) age(now time.Time) time.Duration { return max(0, now.Sub(f.Heard)) }

// cause is why nothing was ever loaded, for whoever sets the dashboard up.
func (f Freshness) cause() string { return cmp.Or(f.Cause, "no answer") }

// why is what follows "etcd unreachable since …": the kind of trouble, where it says more than that.
func (f Freshness) why() string {
	switch f.Class {
	case "unreachable":
		return ""
	case "":
		return ": no answer"
	}
	return ": " + f.Class
}
