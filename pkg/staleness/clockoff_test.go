package staleness_test

import (
	"testing"
	"time"

	"github.com/clustermutex/unlocker/pkg/metadata"
	. "github.com/clustermutex/unlocker/pkg/staleness"
)

func TestHolderClockErrorIsReported(t *testing.T) {
	const (
		day = 24 * time.Hour
		now = 8 * time.Hour // since start; the locks alert a minute after they were taken, and end a minute later
	)
	taken := func(ago time.Duration) func(*metadata.Record) {
		return func(r *metadata.Record) {
			behind(ago - now)(r)
			arrivedAt(now - ago)(r)
		}
	}
	listed := func(r *metadata.Record) { r.Seen.Arrived = 0 }
	followed := func(ago time.Duration) func(*metadata.Record) {
		return func(r *metadata.Record) { r.Seen.Followed = now - ago }
	}
	for _, c := range []struct {
		name          string
		record        *metadata.Record
		skew          time.Duration
		off           time.Duration
		state         metadata.State
		alert, unlock time.Duration // from now
	}{
		{"a right one is not off", lock(taken(30 * time.Second)), 0, 0, metadata.StateHeld, 30 * time.Second,
			90 * time.Second},
		{"nor one within the tolerance", lock(taken(0), behind(30*time.Second)), 0, 0, metadata.StateHeld,
			30 * time.Second, 90 * time.Second},
		{"nor on the other side", lock(taken(0), behind(-30*time.Second)), 0, 0, metadata.StateHeld, 90 * time.Second,
			150 * time.Second},
		{"an operator who expects more gets it", lock(taken(0), behind(-time.Minute)), time.Minute, 0,
			metadata.StateHeld, 2 * time.Minute, 3 * time.Minute},
		{"one that is behind: its deadline is that of a right clock", lock(taken(0), behind(6*time.Minute)), 0,
			-6 * time.Minute, metadata.StateAlerting, -5 * time.Minute, 2 * time.Minute},
		{"one that is ahead: people are alerted when a right clock would have it", lock(taken(0), behind(-day)), 0, day,
			metadata.StateHeld, time.Minute, day + 2*time.Minute},
		{"and its lock alerts for as long as it is there", lock(taken(time.Hour), behind(-day)), 0, day,
			metadata.StateAlerting, -59 * time.Minute, day - 58*time.Minute},
		{"ahead shows in a record that was listed, too: at least by so much",
			lock(taken(time.Hour), behind(-day), listed), 0, day, metadata.StateAlerting, -59 * time.Minute,
			day - 58*time.Minute},
		{"behind does not: it may have been there for long", lock(taken(time.Hour), behind(day), listed), 0, 0,
			metadata.StateExpired, -day - 59*time.Minute, -day - 58*time.Minute},
		{"nor when the write may have waited for an etcd that was away",
			lock(taken(0), behind(90*time.Second), followed(time.Minute)), 0, 0, metadata.StateAlerting,
			-30 * time.Second, 30 * time.Second},
		{"it does when etcd was there all the time", lock(taken(0), behind(90*time.Second), followed(2*time.Minute)), 0,
			-90 * time.Second, metadata.StateAlerting, -30 * time.Second, 2 * time.Minute},
		{"nobody sends what is over already", lock(taken(0), behind(2*time.Minute), followed(time.Minute)), 0,
			-2 * time.Minute, metadata.StateAlerting, -time.Minute, 2 * time.Minute},
		{"alive counts where there is one", lock(taken(time.Hour), func(r *metadata.Record) {
			r.AlertAt = start.Add(now + time.Minute)
			r.AutoUnlockAt = start.Add(now + 2*time.Minute)
			r.Alive = &metadata.Alive{At: start.Add(now)}
			r.Seen.Arrived = now
		}), 0, 0, metadata.StateHeld, time.Minute, 2 * time.Minute},
		{"without any time nothing is known", lock(taken(0), behind(-day), lockedAt(time.Time{})), 0, 0,
			metadata.StateHeld, day + time.Minute, day + 2*time.Minute},
		{"the alert of a record that has none stays the policy's", lock(taken(0), behind(-day), noAlertAt), 0, day,
			metadata.StateMalformed, time.Hour, day + 2*time.Minute},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.record.AlertAt.IsZero() {
				c.record.Seen.First = now
			}
			p := DefaultPolicy()
			p.ClockSkew = c.skew
			got := Judge(c.record, p, at(now))
			if got.ClockOff != c.off || got.State != c.state {
				t.Errorf("%s, off by %v, want %s and %v", got.State, got.ClockOff, c.state, c.off)
			}
			alert := got.DueAlert.Sub(start.Add(now))
			unlock := got.ExpiresAt.Sub(start.Add(now))
			if alert != c.alert || unlock != c.unlock {
				t.Errorf("alert in %v, auto-unlock in %v, want %v and %v", alert, unlock, c.alert, c.unlock)
			}
		})
	}
}

// If our own wall clock is wrong, the holder's seems off, and its deadlines count in elapsed time.
func TestOwnClockErrorMovesNoDeadlineOfAWatchedRecord(t *testing.T) {
	r := lock(arrivedAt(time.Second))
	r.Seen.Followed = -48 * time.Hour
	for _, off := range []time.Duration{-24 * time.Hour, -time.Minute, time.Minute, 24 * time.Hour} {
		for _, after := range []time.Duration{time.Second, 59 * time.Second, 3 * time.Minute} {
			now := at(after)
			now.Wall = now.Wall.Add(off)
			got := Judge(r, DefaultPolicy(), now)
			alert := got.DueAlert.Sub(now.Wall) + after
			unlock := got.ExpiresAt.Sub(now.Wall) + after
			if off > 0 && (unlock < 2*time.Minute || unlock > 2*time.Minute+2*time.Second) {
				t.Errorf("ahead by %v, after %v: auto-unlock at %v", off, after, unlock)
			}
			if off < 0 && (alert < time.Minute || alert > time.Minute+2*time.Second) {
				t.Errorf("behind by %v, after %v: alert at %v", off, after, alert)
			}
		}
	}
}
