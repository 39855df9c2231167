package locks_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/diagnosis"
	"github.com/clustermutex/unlocker/internal/locks"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

// crowd is a snapshot of many locks with many ties in every order.
func crowd(n int) (*locks.Snapshot, time.Time) {
	random := rand.New(rand.NewPCG(5, 6))
	now := time.Date(2026, 11, 23, 3, 0, 0, 0, time.UTC)
	held := make([]*metadata.Record, n)
	queues := map[string][]metadata.Waiter{}
	for i := range held {
		r := &metadata.Record{Name: fmt.Sprintf("lock-%05d", i), UUID: "u", Token: int64(i + 1),
			Identity: metadata.Identity{Owner: fmt.Sprint("Owner-", random.IntN(9)),
				Hostname: fmt.Sprint("host-", random.IntN(99))},
			LockedAt: now.Add(-time.Duration(random.IntN(60)) * time.Minute),
			AlertAt:  now.Add(time.Duration(random.IntN(120)-20) * time.Minute)}
		r.AutoUnlockAt = r.AlertAt.Add(time.Duration(random.IntN(3)) * time.Hour)
		switch random.IntN(20) {
		case 0:
			r = &metadata.Record{Name: r.Name, Token: r.Token}
		case 1:
			queues[r.Name] = make([]metadata.Waiter, 1+random.IntN(3))
		}
		held[i] = r
	}
	defaults := diagnosis.CombinedPolicy{Policy: staleness.DefaultPolicy()}
	return locks.Build(locks.Input{Locks: held, Queues: queues, Combined: defaults}, staleness.Moment{Wall: now}), now
}

// TestPagesShowEveryLockOnceInEveryOrder pages through lists forward and back.
func TestPagesShowEveryLockOnceInEveryOrder(t *testing.T) {
	s, now := crowd(2000)
	for _, by := range locks.Orders() {
		for _, query := range []string{"", "-owner:owner-3"} {
			for _, o := range []locks.Order{{By: by}, {By: by, Reverse: true}} {
				found, err := s.Search(t.Context(), locks.ParseQuery(query, locks.AboutLocks), o, now)
				proctest.Must(t, err)
				var forth, back []*locks.Row
				w := found.Window(o, "list", "", "", 70)
				for forth = w.Rows; w.Next != ""; forth = slices.Concat(forth, w.Rows) {
					w = found.Window(o, "list", w.Next, "", 70)
				}
				for back = w.Rows; w.Prev != ""; back = slices.Concat(w.Rows, back) {
					w = found.Window(o, "list", "", w.Prev, 70)
				}
				if !slices.Equal(forth, found.Rows) || !slices.Equal(back, found.Rows) {
					t.Errorf("%q by %s: %d rows forth, %d back, want %d in the order of the list", query, o,
						len(forth), len(back), len(found.Rows))
				}
			}
		}
	}
}

// TestOwnersAddUpToAllLocks compares the sums by owner with the sum of all locks.
func TestOwnersAddUpToAllLocks(t *testing.T) {
	s, now := crowd(5_000)
	found, err := s.Search(t.Context(), locks.ParseQuery("", locks.AboutLocks), locks.ParseOrder("name"), now)
	proctest.Must(t, err)
	var sum locks.Counts
	in := map[metadata.State]int{}
	for _, g := range found.ByOwner() {
		sum.Total += g.Total
		for _, of := range metadata.States() {
			in[of.State] += g.In(of.State)
		}
		sum.Waiting += g.Waiting
		sum.Oldest = protocol.Earlier(sum.Oldest, g.Oldest)
		if first := g.Rows[0].Owner; first != g.Owner {
			t.Errorf("the group of %q has a lock of %q", g.Owner, first)
		}
		if next := g.NextUnlock; next != nil && next.DueUnlock().Before(s.Totals.NextUnlock.DueUnlock()) {
			t.Errorf("%q is unlocked before %q", next.Name, s.Totals.NextUnlock.Name)
		}
	}
	if sum.Total != s.Totals.Total || sum.Waiting != s.Totals.Waiting || sum.Oldest != s.Totals.Oldest {
		t.Errorf("%+v, want %+v", sum, s.Totals)
	}
	for state, n := range in {
		if n != s.Totals.In(state) {
			t.Errorf("%d are %s, want %d", n, state, s.Totals.In(state))
		}
	}
	if in[metadata.StateAlerting] == 0 || in[metadata.StateMalformed] == 0 || sum.Waiting == 0 {
		t.Errorf("%+v: not all kinds are there", sum)
	}
}

// TestClassChangesOverTime: the snapshot says when it has to be rebuilt.
func TestClassChangesOverTime(t *testing.T) {
	noon := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	at := func(d time.Duration) time.Time { return noon.Add(d) }
	expired := &metadata.Record{Name: "a", UUID: "u", Token: 7, LockedAt: at(-2 * time.Hour),
		AlertAt: at(-time.Hour), AutoUnlockAt: at(-30 * time.Second)}
	late := &metadata.Record{Name: "a", UUID: "u", Token: 7, LockedAt: at(-time.Hour), AlertAt: at(-time.Minute),
		AutoUnlockAt: at(time.Hour), Extensions: 179, Alive: &metadata.Alive{At: at(-20 * time.Second)}}
	for _, c := range []struct {
		record *metadata.Record
		is     locks.Class
		next   time.Duration
	}{{expired, locks.ClassLeaving, 10 * time.Second}, {late, locks.ClassLate, 40 * time.Second}} {
		removes := diagnosis.CombinedPolicy{Unlockers: 1, Removes: true, Policy: staleness.DefaultPolicy()}
		s := locks.Build(locks.Input{Locks: []*metadata.Record{c.record}, Combined: removes},
			staleness.Moment{Wall: noon, Mono: time.Hour})
		if first := s.Ranking().First; first.Class != c.is || !s.Next.Round(time.Second).Equal(at(c.next)) {
			t.Errorf("it is %v until %v, want %v until %v", first.Class, s.Next, c.is, at(c.next))
		}
	}
}

func TestClassChangesWithTheUnlockers(t *testing.T) {
	noon := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	held := []*metadata.Record{{Name: "a", UUID: "u", Token: 7, LockedAt: noon.Add(-2 * time.Hour),
		AlertAt: noon.Add(-time.Hour), AutoUnlockAt: noon.Add(-30 * time.Second)}}
	f := diagnosis.CombinedPolicy{Unlockers: 1, Removes: true, Policy: staleness.DefaultPolicy()}
	s := locks.NewSnapshots(locks.Source{Locks: func() []*metadata.Record { return held },
		Combined: func() diagnosis.CombinedPolicy { return f }})
	for i, want := range []locks.Class{locks.ClassLeaving, locks.ClassOverdue} {
		at := noon.Add(time.Duration(i) * time.Second)
		f.Removes = i == 0
		if got := s.Current(at, locks.Freshness{}).Ranking().First.Class; got != want {
			t.Errorf("it is %v, want %v", got, want)
		}
	}
}
