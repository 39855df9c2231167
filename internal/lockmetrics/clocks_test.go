package lockmetrics_test

import (
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/lockmetrics"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

func TestHoldersWhoseClockIsOffAreCountedAndShown(t *testing.T) {
	// taken is a lock that arrived a minute ago, by a holder whose clock is ahead.
	taken := func(name string, ahead time.Duration) *metadata.Record {
		r := lock(name, time.Hour)
		r.LockedAt = now.Add(ahead - time.Minute)
		r.AlertAt = r.LockedAt.Add(time.Hour)
		r.AutoUnlockAt = r.LockedAt.Add(2 * time.Hour)
		r.Seen = metadata.Seen{First: 59 * time.Minute, Changed: 59 * time.Minute, Arrived: 59 * time.Minute}
		return r
	}
	w := newWorld(taken("right", 0), taken("behind", -6*time.Minute), taken("ahead", 24*time.Hour))
	count := `
# HELP unlocker_holder_clocks_off Held locks whose holder's clock is off.
# TYPE unlocker_holder_clocks_off gauge
unlocker_holder_clocks_off 2
`
	expect(t, lockmetrics.New(w.config()), count+`
# HELP unlocker_lock_holder_clock_offset_seconds How far the clock of the lock's holder is ahead of the own one, `+
		`negative = behind; only where it is off.
# TYPE unlocker_lock_holder_clock_offset_seconds gauge
unlocker_lock_holder_clock_offset_seconds{hostname="host-1",lock="ahead",owner="billing"} 86400
unlocker_lock_holder_clock_offset_seconds{hostname="host-1",lock="behind",owner="billing"} -360
`, "unlocker_holder_clocks_off", "unlocker_lock_holder_clock_offset_seconds")

	without := w.config()
	without.Series = lockmetrics.SeriesNone
	expect(t, lockmetrics.New(without), count, "unlocker_holder_clocks_off",
		"unlocker_lock_holder_clock_offset_seconds")
}
