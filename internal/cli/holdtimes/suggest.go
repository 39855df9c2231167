package holdtimes

import "time"

// MinHolds is the number of holds below which nothing is suggested.
const MinHolds = 20

const (
	alertFactor  = 2 // of the 99th percentile
	unlockFactor = 5 // of the 99th percentile
	longestTimes = 2 // no auto-unlock comes before this many times the longest hold

	shortestAlert  = 30 * time.Second
	shortestUnlock = time.Minute // what a heartbeat has unless the program says otherwise
)

// Suggestion is what the deadlines of a lock should be.
type Suggestion struct {
	AlertAfter time.Duration
	// AutoUnlockAfter is 0 for a lock with a heartbeat, where it says how soon the lock of a dead holder is free.
	AutoUnlockAfter time.Duration
}

// Suggest returns deadlines that the holds up to now would have kept, with room; false if there are too few of them.
// What counts is not the whole hold but the longest time in it without a call of alive, which postpones the deadlines.
func (l *Lock) Suggest() (Suggestion, bool) {
	if len(l.Held) < MinHolds {
		return Suggestion{}, false
	}
	s := Suggestion{AlertAfter: roundUp(max(alertFactor*Percentile(l.alerts, 99), shortestAlert))}
	if !l.Beats {
		s.AutoUnlockAfter = roundUp(max(unlockFactor*Percentile(l.unlocks, 99),
			longestTimes*l.unlocks[len(l.unlocks)-1], shortestUnlock, s.AlertAfter))
	}
	return s, true
}

// roundUp returns the next time that a person would write down.
func roundUp(d time.Duration) time.Duration {
	step := 24 * time.Hour
	for _, s := range []struct{ below, step time.Duration }{
		{time.Minute, 10 * time.Second}, {10 * time.Minute, time.Minute}, {time.Hour, 5 * time.Minute},
		{6 * time.Hour, 15 * time.Minute}, {48 * time.Hour, time.Hour},
	} {
		if d <= s.below {
			step = s.step
			break
		}
	}
	return (d + step - 1).Truncate(step)
}
