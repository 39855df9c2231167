package protocol

import (
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

const (
	// MaxPresenceBytes is how long a presence record may be; longer ones are not read.
	MaxPresenceBytes = 128 << 10
	maxHeldBack      = 16
)

// ReadPresence reads the presence record of an unlocker by its id, which is the end of its key. It returns nil if that
// is too long, cannot be read, or lacks the time of writing: no unlocker wrote it.
func ReadPresence(id string, value []byte) *metadata.Presence {
	if len(value) > MaxPresenceBytes {
		return nil
	}
	p, err := Unmarshal[metadata.Presence](value)
	if err != nil || p.Now.IsZero() {
		return nil
	}
	p.ID = id // the key tells unlockers apart
	for _, shown := range []*string{&p.ID, &p.Hostname, &p.Version, &p.Mode} {
		*shown = text.Cut(*shown, metadata.MaxTextBytes)
	}
	p.HeldBack = p.HeldBack[:min(len(p.HeldBack), maxHeldBack)]
	for i := range p.HeldBack {
		p.HeldBack[i] = text.Cut(p.HeldBack[i], metadata.MaxTextBytes)
	}
	return &p
}
