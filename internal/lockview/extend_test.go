package lockview_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clustermutex/unlocker/internal/lockview"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
	"github.com/clustermutex/unlocker/pkg/sweeper"
)

// Foreign writes into the range of a dead holder's lock must not keep it; writes of a living holder must.
func TestWhichWritesKeepALock(t *testing.T) {
	deadlines := func(at time.Time) []op {
		return []op{
			put(layout.Field("a", metadata.FieldAlertAt), metadata.FormatTime(at)),
			put(layout.Field("a", metadata.FieldAutoUnlockAt), metadata.FormatTime(at.Add(time.Second))),
		}
	}
	for _, c := range []struct {
		name  string
		write func(locked time.Time, n int) []op // n counts the writes
		keeps bool
	}{
		{"not who writes keys that fit no layout",
			func(time.Time, int) []op { return []op{put(layout.Record("a")+"invoice/alive", "x")} }, false},
		{"not who writes attributes",
			func(time.Time, int) []op { return []op{put(layout.Field("a", "progress"), "x")} }, false},
		{"not who comes and goes", func(_ time.Time, n int) []op {
			if n%2 == 0 {
				return []op{put(layout.Field("a", "note"), "x"), put(layout.Record("a")+"x/y", "")}
			}
			return []op{remove(layout.Field("a", "note")), remove(layout.Record("a") + "x/y")}
		}, false},
		{"not who acknowledges it, and withdraws that", func(_ time.Time, n int) []op {
			if n%2 == 0 {
				return []op{put(layout.Field("a", metadata.FieldAcknowledged), "{}")}
			}
			return []op{remove(layout.Field("a", metadata.FieldAcknowledged))}
		}, false},
		{"not who writes the deadlines that there are",
			func(locked time.Time, _ int) []op { return deadlines(locked.Add(time.Second)) }, false},
		{"a holder whose clock is behind, and that extends", func(_ time.Time, n int) []op {
			return deadlines(time.Now().Add(-time.Minute + time.Duration(n)*time.Millisecond))
		}, true},
		{"a holder that says that it is alive", func(time.Time, int) []op {
			return []op{put(layout.Field("a", metadata.FieldAlive), metadata.FormatTime(time.Now().Round(0))+" on it")}
		}, true},
	} {
		t.Run(c.name, simulated(func(t *testing.T, w *world) {
			time.Sleep(3 * 365 * 24 * time.Hour) // times of the protocol have ten digits
			locked := time.Now().Round(0)
			w.do(lock(t, "a", uuid(1), func(d *metadata.Draft) {
				d.LockedAt = locked
				d.AlertAt = locked.Add(time.Second)
				d.AutoUnlockAt = locked.Add(2 * time.Second)
			})...)
			removed := sweep(t, run(t, w.source(), lockview.Options{}))
			for n := range 30 {
				time.Sleep(2 * time.Second)
				w.do(c.write(locked, n)...)
				w.do(put("/other", "")) // a sign of life
				synctest.Wait()
			}
			if kept := len(removed) == 0; kept != c.keeps {
				t.Errorf("kept for a minute: %v", kept)
			}
		}))
	}
}

// A holder's clock must not decide when its lock is removed: an observed write keeps the lock for as long as the holder
// asked for.
func TestAHolderWhoseClockIsBehindKeepsItsLock(t *testing.T) {
	const (
		behind = 6 * time.Minute
		life   = 5 * time.Minute
	)
	for _, c := range []struct {
		name  string
		every time.Duration // between two extensions
		lives time.Duration // the last extension is not later than this
	}{
		{"that is dead: until its time is over", life, 0},
		{"that extends every 90 s: until the time after the last extension is over", 90 * time.Second, time.Hour},
	} {
		t.Run(c.name, simulated(func(t *testing.T, w *world) {
			time.Sleep(3 * 365 * 24 * time.Hour) // times of the protocol have ten digits
			clock := func() time.Time { return time.Now().Round(0).Add(-behind) }
			removed := sweep(t, run(t, w.source(), lockview.Options{}))
			w.live(10 * time.Second)
			w.do(lock(t, "a", uuid(1), func(d *metadata.Draft) {
				d.LockedAt = clock()
				d.AlertAt = clock().Add(time.Minute)
				d.AutoUnlockAt = clock().Add(life)
			})...)
			written := time.Now()
			for began := time.Now(); time.Since(began)+c.every <= c.lives; {
				w.live(c.every)
				w.do(put(layout.Field("a", metadata.FieldAlertAt), metadata.FormatTime(clock().Add(time.Minute))),
					put(layout.Field("a", metadata.FieldAutoUnlockAt), metadata.FormatTime(clock().Add(life))),
					put(layout.Field("a", metadata.FieldAlive), metadata.FormatTime(clock())))
				written = time.Now()
			}
			w.live(time.Until(written.Add(life - time.Second)))
			if n := len(removed); n > 0 {
				t.Fatalf("removed %d times, the first one more than a second before %v after its last write", n, life)
			}
			w.live(10 * time.Second)
			if len(removed) == 0 {
				t.Errorf("it is still there 9 s after the %v that its holder asked for", life)
			}
		}))
	}
}

// sweep runs an unlocker with a verified clock that warns for three seconds, and returns where it puts what it removes.
func sweep(t *testing.T, v *lockview.View) chan string {
	t.Helper()
	removed := make(chan string, 100)
	s, err := sweeper.New(sweeper.Config{
		ID: "u1", Mode: sweeper.AutoUnlock, Policy: staleness.Policy{MinWarning: 3 * time.Second},
		Locks: v.All, Lock: v.Lock, Clock: v.Clock,
		Fresh: func() sweeper.Freshness {
			f := v.Fresh()
			return sweeper.Freshness{Synced: f.Synced, Age: time.Since(f.Heard), Revision: f.Revision}
		},
		Announce: func(context.Context, metadata.Presence) (int64, uint64, error) { return 1_000_000, 2, nil },
		Offsets:  func(context.Context) []time.Duration { return []time.Duration{0} },
		Remove: func(_ context.Context, removals []metadata.Removal) []error {
			for _, r := range removals {
				removed <- r.Record.Name
			}
			return make([]error, len(removals))
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	proctest.Go(t, s.Run)
	return removed
}
