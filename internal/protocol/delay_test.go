package protocol_test

import (
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

func TestALockDelayInWords(t *testing.T) {
	now := time.Date(2026, 11, 21, 3, 12, 41, 0, time.UTC)
	auto := metadata.Delay{Lock: "a", Owner: "billing", Hostname: "host-3", Ended: metadata.EndedAutoUnlocked,
		At: metadata.Time{Time: now.Add(-4 * time.Second)}, Seconds: 30, Leased: true}
	forced := auto
	forced.Ended = metadata.EndedForced
	forced.By = "ann"
	unleased := auto
	unleased.Leased = false
	late := auto
	late.At.Time = now.Add(-31 * time.Second)
	for want, d := range map[string]metadata.Delay{
		"a lock delay of 30s after the hold of billing on host-3, auto-unlocked 4s ago, with 0:26 left":         auto,
		"a lock delay of 30s after the hold of billing on host-3, force-unlocked by ann 4s ago, with 0:26 left": forced,
		"a lock delay of 30s after the hold of billing on host-3, auto-unlocked 31s ago, about to end":          late,
		"a lock delay after a hold of which nothing is known, without a lease: it stays until somebody ends it": {
			Unreadable: true},
		"a lock delay of 30s after the hold of billing on host-3, auto-unlocked 4s ago, without a lease: " +
			"it stays until somebody ends it": unleased,
	} {
		if got := protocol.DelayWords(&d, now); got != want {
			t.Errorf("it is %q, want %q", got, want)
		}
	}
}
