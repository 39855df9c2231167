package staleness_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/pkg/metadata"
	. "github.com/clustermutex/unlocker/pkg/staleness"
)

// anyRecord returns a record with random times around a moment, mostly near the edges of the rules.
func anyRecord(random *rand.Rand, now time.Duration) *metadata.Record {
	near := func() time.Duration {
		const century = 100 * 365 * 24 * time.Hour
		edges := [...]time.Duration{0, 30 * time.Second, IdleAhead, 5 * time.Minute, time.Hour, century}
		d := edges[random.IntN(len(edges))] + time.Duration(random.Int64N(int64(6*time.Second))) - 3*time.Second
		if random.IntN(3) == 0 {
			return -d
		}
		return d
	}
	sometimes := func(n int) bool { return random.IntN(n) == 0 }
	when := func() time.Time { return start.Add(now + near()) }
	r := lock()
	r.LockedAt = when()
	r.AlertAt = when()
	r.AutoUnlockAt = when()
	r.Seen.First = max(0, now-near().Abs())
	r.Seen.Changed = r.Seen.First + time.Duration(random.Int64N(int64(now-r.Seen.First)+1))
	if sometimes(2) {
		r.Seen.Arrived = max(1, r.Seen.Changed)
		r.Seen.Followed = max(0, r.Seen.Arrived-near().Abs())
	}
	if sometimes(4) {
		r.Alive = &metadata.Alive{At: when()}
	}
	for _, rare := range []func(*metadata.Record){
		noAlertAt, noAutoUnlockAt, noUUID,
		func(r *metadata.Record) { r.LockedAt = time.Time{} },
		func(r *metadata.Record) { r.Misplaced = true },
		func(r *metadata.Record) { r.Death = &metadata.Statement{Seen: now} },
		func(r *metadata.Record) { r.Suspicion = &metadata.Statement{Seen: now} },
		func(r *metadata.Record) {
			r.Acknowledged = &metadata.Acknowledgement{Until: metadata.Time{Time: start.Add(now + near())}}
		},
		func(r *metadata.Record) { r.Extended = &metadata.Extension{} },
	} {
		if sometimes(10) {
			rare(r)
		}
	}
	return r
}

func TestIdleLockMissesNoChange(t *testing.T) {
	const now = 400 * 24 * time.Hour
	random := rand.New(rand.NewPCG(1, 2))
	idle := 0
	for range 300_000 {
		policy := DefaultPolicy()
		policy.ClockSkew = time.Duration(random.IntN(3)) * 20 * time.Second
		policy.DefaultAlertAfter = time.Duration(random.IntN(3)) * 90 * time.Minute
		if policy.DefaultAlertAfter > 0 {
			policy.DefaultAutoUnlockAfter = time.Duration(random.IntN(2)) * 3 * time.Hour
		}
		r := anyRecord(random, now)
		until := IdleUntil(r, policy, at(now))
		if until == 0 {
			continue
		}
		idle++
		if until <= now || r.Death != nil || r.Suspicion != nil {
			t.Fatalf("idle until %v, at %v: %+v", until, now, r)
		}
		for range 3 {
			m := at(now + time.Duration(random.Int64N(int64(min(until-now, 3*time.Hour)))))
			m.Wall = m.Wall.Add(time.Duration(random.Int64N(int64(2*IdleTolerance))) - IdleTolerance)
			v := Judge(r, policy, m)
			if v.State != Held || v.ClockOff != 0 || !v.AbandonedAt.IsZero() || r.AcknowledgedAt(m.Wall) != nil {
				t.Fatalf("at %v, idle until %v: %+v\n%+v", m, until, v, r)
			}
			if unlock := v.AutoUnlockAt; !unlock.IsZero() && unlock.Sub(m.Wall) < IdleAhead-2*IdleTolerance {
				t.Fatalf("at %v, idle until %v: auto-unlock at %v\n%+v", m, until, unlock, r)
			}
			d := Decide(r, policy, Conditions{Forward: true, Writable: true, Fresh: true}, m)
			if d.HeldBack != Deadline && !v.AutoUnlockAt.IsZero() {
				t.Fatalf("at %v: held back by %q", m, d.HeldBack)
			}
		}
	}
	if idle < 5_000 {
		t.Errorf("only %d were idle: nothing was tested", idle)
	}
}

func TestOrdinaryLockIsIdleUntilShortlyBeforeItsAlert(t *testing.T) {
	const h = time.Hour
	late := record(-h, 0, h, 2*h)
	late.Seen.Arrived = 1
	for _, c := range []struct {
		name string
		r    *metadata.Record
		want time.Duration
	}{
		{"it is", record(1, 0, h, 2*h), h - 2*time.Second},
		{"it is when it was taken long before it was listed", record(-h, 0, h, 2*h), h - 2*time.Second},
		{"it may not be when the write took an hour to arrive", late, 0},
		{"the auto-unlock comes first", record(1, 0, 2*h, h), h - IdleAhead - 2*time.Second},
		{"it alerts in a moment", record(1, 0, 2*time.Second, h), 0},
		{"a lock that nobody can judge is not", lock(noUUID), 0},
	} {
		if got := IdleUntil(c.r, DefaultPolicy(), at(0)); got != c.want {
			t.Errorf("%s: until %v, want %v", c.name, got, c.want)
		}
	}
}
