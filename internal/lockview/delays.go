package lockview

import (
	"maps"
	"slices"
	"strings"

	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// Delays returns the lock delays, sorted by the name of the lock or share whose hold ended.
func (v *View) Delays() []metadata.Delay {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.SortedFunc(maps.Values(v.snap.delays), func(a, b metadata.Delay) int {
		return strings.Compare(a.Lock, b.Lock)
	})
}

// Delay returns the delay of a lock or share, or nil.
func (v *View) Delay(lock string) *metadata.Delay {
	v.mu.Lock()
	defer v.mu.Unlock()
	d, ok := v.snap.delays[lock]
	if !ok {
		return nil
	}
	return &d
}

// DelaysAbout returns the delays of a lock and of its shares.
func (v *View) DelaysAbout(lock string) []metadata.Delay {
	return slices.DeleteFunc(v.Delays(), func(d metadata.Delay) bool {
		base, _, ok := metadata.ParseShare(d.Lock)
		return d.Lock != lock && (!ok || base != lock)
	})
}

func decodeDelay(lock string, kv protocol.KV) metadata.Delay {
	d := protocol.ReadDelay(strings.Clone(lock), kv)
	for _, text := range []*string{&d.UUID, &d.Owner, &d.Hostname, &d.Purpose, &d.By} {
		*text = clip(*text)
	}
	return d
}

// reconcileDelays replaces the delays by those of a list, except for what was touched meanwhile.
func (v *View) reconcileDelays(listed map[string]metadata.Delay, t *touched) {
	for lock := range t.delays {
		delete(listed, lock)
		if d, ok := v.snap.delays[lock]; ok {
			listed[lock] = d
		}
	}
	v.snap.delays = listed
}
