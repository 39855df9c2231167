package lockview

import (
	"time"

	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// maxUnlockers is how many unlockers are kept: more than any installation runs, and few enough that a hostile writer
// cannot fill the memory.
const maxUnlockers = 1000

// Unlocker is an unlocker as its record was read last.
type Unlocker struct {
	protocol.Unlocker
	revision int64
	heard    time.Time // when its record arrived, or was listed
	readable bool
}

// runs reports whether the unlocker is running, for a view that last heard from etcd at the given time. While etcd is
// silent, no unlocker is given up.
func (u Unlocker) runs(heard time.Time) bool {
	return u.readable && heard.Sub(u.heard) <= protocol.PresenceTTL
}

func decodeUnlocker(instance string, kv protocol.KV, arrived time.Time, i *interner) Unlocker {
	p := protocol.ReadPresence(instance, kv.Value)
	if p == nil { // it says nothing about that unlocker's clock
		nameless := metadata.Presence{ID: clip(instance)}
		return Unlocker{Unlocker: protocol.Unlocker{Presence: nameless}, revision: kv.ModRevision, heard: time.Now()}
	}
	p.Hostname, p.Version = i.text(p.Hostname), i.text(p.Version)
	return Unlocker{Unlocker: protocol.Unlocker{Presence: *p, Arrived: arrived}, revision: kv.ModRevision,
		heard: time.Now(), readable: true}
}
