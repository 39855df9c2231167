package sweeper

import (
	"slices"
	"time"
)

const (
	// delayOthers is how much longer than usual a commit may take at least, and delayTimes how many times as much
	// longer. Writes of others wait behind all that is in flight, so this is about what they feel of a mass removal.
	delayOthers = 25 * time.Millisecond
	delayTimes  = 2

	// inFlight batches keep etcd busy while the outcome of one is settled and the next one is decided. Two small ones
	// delay others as one large one does.
	inFlight = 2
	minBatch = 32
	maxBatch = 64
)

// pace decides how many removals are in one commit: as many as others do not mind.
type pace struct{ size int }

// took adjusts the pace to what a commit of n removals took, where a write that no removal delays takes usual.
func (p *pace) took(d, usual time.Duration, n int) {
	allowed := max(delayOthers, delayTimes*usual)
	switch felt := d - usual; {
	case felt > allowed:
		p.size = max(minBatch, p.size/2)
	case felt <= allowed/2 && n == p.size:
		p.size = min(maxBatch, p.size*2)
	}
}

// writesKept is how many canaries show what a write usually takes.
const writesKept = 60

// wrote notes what a canary took that no removal delayed.
func (o *observer) wrote(took time.Duration) {
	if len(o.writes) == writesKept {
		o.writes = slices.Delete(o.writes, 0, 1)
	}
	o.writes = append(o.writes, took)
}

// usual returns what a write takes that no removal delays: the median of the last ones.
func (o *observer) usual() time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.writes) == 0 {
		return 0
	}
	return slices.Sorted(slices.Values(o.writes))[len(o.writes)/2]
}
