package locks

import (
	"time"

	"github.com/clustermutex/unlocker/internal/protocol"
)

// Freshness judges how current the snapshot of the locks is.
type Freshness struct{ protocol.Freshness }

// staleAfter is after how many missed signs of life the snapshot is not current.
const staleAfter = 2

// Level is how far the snapshot can be trusted; the words are shown and are classes in the style sheet.
type Level string

const (
	Live  Level = "live"
	Stale Level = "stale"
	Never Level = "never" // nothing was ever loaded
)

// Level judges how current the snapshot is. A watch that is just being opened again is not stale by itself: only
// silence is.
func (f Freshness) Level(now time.Time) Level {
	switch {
	case f.HeardAt.IsZero():
		return Never
	case f.missed(now) >= staleAfter:
		return Stale
	}
	return Live
}

// StaleAt returns when the snapshot becomes stale unless etcd is heard from.
func (f Freshness) StaleAt() time.Time {
	return f.HeardAt.Add(staleAfter*f.ProgressInterval + f.ProgressInterval/2)
}

// missed returns how many signs of life have not come. One that is late by less than half a pulse may still be under
// way.
func (f Freshness) missed(now time.Time) int {
	if f.ProgressInterval <= 0 {
		return 0
	}
	return int((now.Sub(f.HeardAt)+f.ProgressInterval/2)/f.ProgressInterval) - 1
}

// judgedAt returns the moment as of which locks are judged: now or, if etcd is silent, its last sign of life. What
// became of a lock since then is unknown, and silence must not make it look worse.
func (f Freshness) judgedAt(now time.Time) time.Time {
	if f.missed(now) > 0 {
		return f.HeardAt
	}
	return now
}

// Why returns the kind of trouble, if it is known: the end of the sentence "etcd has not answered since …".
func (f Freshness) Why() string {
	if f.Class == "" {
		return ""
	}
	return ": " + f.Class
}
