package sweeper

import (
	"slices"
	"time"

	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

const (
	// maxMeasurementAge is how long a measurement of the clocks of etcd's members is valid.
	maxMeasurementAge = 5 * time.Minute
	// minTolerance is the precision of comparing clocks over the network.
	minTolerance = 2 * time.Second
)

// clocks holds the clocks of others. Each is stored as its reading when our monotonic clock was zero, so a jump of our
// wall clock shows at once, without another measurement.
type clocks struct {
	peers     map[string]peerClock
	members   []time.Time
	membersAt time.Duration // when they were measured
}

type peerClock struct {
	shown    time.Time // its clock in its last record
	zero     time.Time // its clock when our monotonic clock was zero; zero = unknown
	revision int64     // in its last record
}

// claim is the highest revision that another unlocker claims to have seen.
type claim struct {
	peer     string
	revision int64
}

// highestClaim returns the highest claim of the unlockers known to be alive: a record counts from its second value on.
func (c *clocks) highestClaim() (highest claim) {
	for id, peer := range c.peers {
		if !peer.zero.IsZero() && peer.revision > highest.revision {
			highest = claim{id, peer.revision}
		}
	}
	return highest
}

// setPeers updates the clocks of the other unlockers from their presence records. A record counts from its second value
// on: the first may have been in etcd for a while, and its writer may be dead. A delay makes our clock seem ahead,
// which can only hold back removals.
func (c *clocks) setPeers(peers []metadata.Presence, self string, mono time.Duration) {
	heard := make(map[string]peerClock, len(peers))
	for _, p := range peers {
		age := time.Since(p.ArrivedAt)
		if p.ID == self || age > protocol.PresenceTTL { // or its age is unknown
			continue
		}
		clock, before := c.peers[p.ID]
		if before && !clock.shown.Equal(p.Now.Time) {
			clock.zero = p.Now.Add(age - mono)
		}
		clock.shown = p.Now.Time
		clock.revision = p.Revision
		heard[p.ID] = clock
	}
	c.peers = heard
}

// setMembers updates the clocks of etcd's members from their offsets to ours. It discards the offsets if our clock
// jumped between before and after.
func (c *clocks) setMembers(offsets []time.Duration, before, after staleness.Moment) {
	if jump(before, after).Abs() > jumpThreshold {
		return
	}
	c.members = nil
	c.membersAt = after.Mono
	for _, offset := range offsets {
		c.members = append(c.members, after.Wall.Add(offset-after.Mono))
	}
}

// verify compares our wall clock with the median of the others. The offset is positive if ours is ahead.
func (c *clocks) verify(now staleness.Moment, skew time.Duration) (staleness.ClockStatus, time.Duration) {
	var ahead []time.Duration
	for _, peer := range c.peers {
		if !peer.zero.IsZero() {
			ahead = append(ahead, now.Wall.Sub(peer.zero.Add(now.Mono)))
		}
	}
	if now.Mono-c.membersAt <= maxMeasurementAge {
		for _, zero := range c.members {
			ahead = append(ahead, now.Wall.Sub(zero.Add(now.Mono)))
		}
	}
	if len(ahead) == 0 {
		return staleness.ClockUnverified, 0
	}
	offset := median(ahead)
	if offset.Abs() > tolerance(skew) {
		return staleness.ClockWrong, offset
	}
	return staleness.ClockVerified, offset
}

// tolerance returns how far off a correct clock may seem.
func tolerance(skew time.Duration) time.Duration { return max(skew, minTolerance) }

// median returns the mean of the two middle values if there is an even number: of two that disagree, neither is
// trusted.
func median(of []time.Duration) time.Duration {
	slices.Sort(of)
	low := of[(len(of)-1)/2]
	high := of[len(of)/2]
	return low/2 + high/2
}

// jumpThreshold is how far wall and monotonic clock may diverge between two observations, a second apart. A clock
// that is being slewed diverges by half a millisecond.
const jumpThreshold = time.Second

// jump returns how far the wall clock moved relative to the monotonic clock.
func jump(from, to staleness.Moment) time.Duration {
	return to.Wall.Sub(from.Wall) - (to.Mono - from.Mono)
}
