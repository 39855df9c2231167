package protocol

import (
	"time"

	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

const (
	// MaxPresenceBytes is how long a presence record may be; longer ones are not read.
	MaxPresenceBytes = 128 << 10
	maxHeldBack      = 16
)

// ReadPresence reads the presence record of an unlocker by its id, which is the end of its key. It returns nil if the
// record is too long, cannot be read, or lacks the time of writing: no unlocker wrote it.
func ReadPresence(id string, value []byte) *metadata.Presence {
	if len(value) > MaxPresenceBytes {
		return nil
	}
	p, err := Unmarshal[metadata.Presence](value)
	if err != nil || p.Now.IsZero() {
		return nil
	}
	p.ID = id // the key identifies the unlocker
	for _, shown := range []*string{&p.ID, &p.Hostname, &p.Version, &p.Mode} {
		*shown = text.Cut(*shown, metadata.MaxTextBytes)
	}
	p.HeldBack = p.HeldBack[:min(len(p.HeldBack), maxHeldBack)]
	for i := range p.HeldBack {
		p.HeldBack[i] = text.Cut(p.HeldBack[i], metadata.MaxTextBytes)
	}
	return &p
}

// Freshness is how current a view of the locks is.
type Freshness struct {
	// Synced reports whether the view matches etcd: it was listed, the watch follows, and etcd was heard from recently.
	Synced bool
	// Revision is the revision that the view shows.
	Revision int64
	// First is the revision of the first list; 0 before it.
	First int64
	// Highest is the highest revision ever seen. If Revision is lower, etcd was restored from an older state, and
	// fencing tokens may repeat.
	Highest int64
	Heard   time.Time     // when etcd was last heard from; zero = never
	Pulse   time.Duration // how often a healthy etcd gives a sign of life; 0 = its silence means nothing
	Since   time.Time     // when Synced last changed
	Class   string        // why it is not synced, in a word or two that everyone may see
	Cause   string        // the same as a sentence, which may name addresses; empty if it is synced
}

// Unlocker is a running unlocker.
type Unlocker struct {
	metadata.Presence
	// Arrived is when its record arrived, by our wall clock. It is zero for a record read in a list, whose age is
	// unknown.
	Arrived time.Time
}

// Presences are what these unlockers publish.
func Presences(running []Unlocker) []metadata.Presence {
	all := make([]metadata.Presence, len(running))
	for i := range running {
		all[i] = running[i].Presence
	}
	return all
}
