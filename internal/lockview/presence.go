package lockview

import (
	"time"

	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// maxUnlockers is how many unlockers are kept: more than anybody runs, so that a hostile writer can not fill the
// memory.
const maxUnlockers = 1000

// Unlocker is a running unlocker.
type Unlocker struct {
	metadata.Presence
	// Arrived is when its record arrived, on our wall clock. It is zero for one that was read in a list, because then
	// it is not known how long the record had been there.
	Arrived time.Time

	revision int64
	heard    time.Time // when its record arrived, or was listed
	readable bool
}

// runs tells whether the unlocker is there, for a view that heard from etcd last at the given time. While nothing is
// heard, nobody is given up.
func (u Unlocker) runs(heard time.Time) bool {
	return u.readable && heard.Sub(u.heard) <= protocol.PresenceTTL
}

func unlocker(instance string, kv protocol.KV, arrived time.Time, i *interner) Unlocker {
	p, ok := document[metadata.Presence](kv.Value)
	if !ok {
		arrived = time.Time{} // says nothing about that unlocker's clock
	}
	p.ID, p.Mode = clip(instance), clip(p.Mode) // the key is what tells unlockers apart
	p.Hostname, p.Version = i.text(clip(p.Hostname)), i.text(clip(p.Version))
	p.HeldBack = p.HeldBack[:min(len(p.HeldBack), 16)]
	for j, reason := range p.HeldBack {
		p.HeldBack[j] = clip(reason)
	}
	return Unlocker{Presence: p, Arrived: arrived, revision: kv.ModRevision, heard: time.Now(), readable: ok}
}
