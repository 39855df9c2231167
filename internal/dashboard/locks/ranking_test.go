package locks_test

import (
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/dashboard/locks"
	"github.com/clustermutex/unlocker/internal/diagnosis/fate"
	"github.com/clustermutex/unlocker/internal/diagnosis/verdict"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

// TestAClassChangesByTimeAlone: the snapshot says when it must be made anew.
func TestAClassChangesByTimeAlone(t *testing.T) {
	noon := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	at := func(d time.Duration) time.Time { return noon.Add(d) }
	expired := &metadata.Record{Name: "a", UUID: "u", Token: 7, LockedAt: at(-2 * time.Hour),
		AlertAt: at(-time.Hour), AutoUnlockAt: at(-30 * time.Second)}
	late := &metadata.Record{Name: "a", UUID: "u", Token: 7, LockedAt: at(-time.Hour), AlertAt: at(-time.Minute),
		AutoUnlockAt: at(time.Hour), Extensions: 179, Alive: &metadata.Alive{At: at(-20 * time.Second)}}
	for _, c := range []struct {
		record *metadata.Record
		is     verdict.Class
		next   time.Duration
	}{{expired, verdict.Leaving, 10 * time.Second}, {late, verdict.Late, 40 * time.Second}} {
		all := []*metadata.Record{c.record}
		s := locks.NewSnapshots(locks.Source{Locks: func() []*metadata.Record { return all }, Fate: func() fate.Fate {
			return fate.Fate{Unlockers: 1, Removes: true, Policy: staleness.DefaultPolicy()}
		}}).Current(noon, staleness.Moment{Wall: noon, Mono: time.Hour})
		if first := s.Ranking().First; first.Class != c.is || !s.Next.Round(time.Second).Equal(at(c.next)) {
			t.Errorf("it is %v until %v, want %v until %v", first.Class, s.Next, c.is, at(c.next))
		}
	}
}

func TestAClassChangesWithTheUnlockers(t *testing.T) {
	noon := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	held := []*metadata.Record{{Name: "a", UUID: "u", Token: 7, LockedAt: noon.Add(-2 * time.Hour),
		AlertAt: noon.Add(-time.Hour), AutoUnlockAt: noon.Add(-30 * time.Second)}}
	f := fate.Fate{Unlockers: 1, Removes: true, Policy: staleness.DefaultPolicy()}
	s := locks.NewSnapshots(locks.Source{Locks: func() []*metadata.Record { return held },
		Fate: func() fate.Fate { return f }})
	for i, want := range []verdict.Class{verdict.Leaving, verdict.Overdue} {
		at := noon.Add(time.Duration(i) * time.Second)
		f.Removes = i == 0
		if got := s.Current(at, staleness.Moment{Wall: at, Mono: time.Hour}).Ranking().First.Class; got != want {
			t.Errorf("it is %v, want %v", got, want)
		}
	}
}
