package staleness_test

import (
	"testing"
	"time"

	"github.com/clustermutex/unlocker/pkg/metadata"
	. "github.com/clustermutex/unlocker/pkg/staleness"
)

// record returns a lock with deadlines at these times after start, the last sign of life at alive; 0 omits a time.
func record(locked, alive, alert, unlock time.Duration) *metadata.Record {
	at := func(d time.Duration) time.Time {
		if d == 0 {
			return time.Time{}
		}
		return start.Add(d)
	}
	return lock(func(r *metadata.Record) {
		r.LockedAt = at(locked)
		r.AlertAt = at(alert)
		r.AutoUnlockAt = at(unlock)
		r.Seen.Changed = max(locked, alive)
		if alive != 0 {
			r.Alive = &metadata.Alive{At: at(alive)}
		}
	})
}

func TestLockExpiringSpan(t *testing.T) {
	const s, m, h = time.Second, time.Minute, time.Hour
	for name, c := range map[string]struct {
		record *metadata.Record
		now    time.Duration
		want   time.Duration // after start; 0 = never
	}{
		"a heartbeat lock that was just taken":         {record(s, 0, m+s, m+s), 2 * s, 49 * s},
		"a heartbeat lock that beat just now":          {record(s, 10*m, 11*m, 11*m), 10*m + s, 10*m + 48*s},
		"a reservation of a day":                       {record(s, 0, 24*h+s, 24*h+s), 2 * s, 24*h + s - 2*m},
		"a lock that alerts before":                    {record(s, 0, 10*m, 30*m), m, 0},
		"a lock that alerts just before its last part": {record(s, 0, 48*s, 61*s), 2 * s, 0},
		"a lock that alerts within its last part":      {record(s, 0, 55*s, 61*s), 2 * s, 49 * s},
		"a lock that alerts already":                   {record(s, 0, 3*m, 30*m), 29 * m, 0},
		"a lock that has expired":                      {record(s, 0, 3*m, 3*m), 4 * m, 0},
		"a lock that never unlocks":                    {record(s, 0, 3*m, 0), m, 0},
		"a lock that does not tell its term":           {record(0, 0, 10*m, 10*m), m, 8 * m},
	} {
		want := start.Add(c.want)
		if c.want == 0 {
			want = time.Time{}
		}
		if got := Judge(c.record, Policy{}, at(c.now)).ExpiringAt(c.record); !got.Equal(want) {
			t.Errorf("%s is expiring from %v on, want %v", name, got.Sub(start), c.want)
		}
	}
}

func TestOnlyProgramsKeepALockAlive(t *testing.T) {
	beats := record(1, time.Second, time.Minute, time.Minute)
	reserved := record(1, time.Second, time.Hour, time.Hour)
	reserved.Attributes = map[string]any{"reserved": true}
	for r, want := range map[*metadata.Record]bool{lock(): false, beats: true, reserved: false} {
		if KeptAlive(r) != want {
			t.Errorf("with alive %v and attributes %v a program keeps the lock: %v", r.Alive, r.Attributes, !want)
		}
	}
}

func TestAlertAtUnlockHasNoTimeOfItsOwn(t *testing.T) {
	for want, r := range map[bool]*metadata.Record{
		true:  record(time.Second, 0, time.Minute, time.Minute),
		false: record(time.Second, 0, time.Minute-1, time.Minute),
	} {
		if got := Judge(r, Policy{}, at(2*time.Second)).AlertsAtUnlock(); got != want {
			t.Errorf("an alert %v before the auto-unlock comes with it: %v", r.AutoUnlockAt.Sub(r.AlertAt), got)
		}
	}
	for name, r := range map[string]*metadata.Record{"alert": record(1, 0, 0, time.Minute),
		"auto-unlock": record(1, 0, time.Minute, 0)} {
		if Judge(r, Policy{}, at(2*time.Second)).AlertsAtUnlock() {
			t.Errorf("without a time of the %s they come together", name)
		}
	}
}
