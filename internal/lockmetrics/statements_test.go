package lockmetrics_test

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/clustermutex/unlocker/internal/lockmetrics"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// stated is a lock whose holder a witness says has ended.
func stated(name, witness string, change ...func(*metadata.Record, *metadata.Statement)) *metadata.Record {
	r := lock(name, time.Hour)
	st := metadata.Statement{Lock: r.Name, UUID: r.UUID, Token: r.Token, Cause: metadata.CauseRebooted,
		Witness: witness, EndedAt: metadata.Time{Time: now.Add(-time.Minute)}, Revision: 9,
		Seen: time.Hour - time.Second}
	for _, c := range change {
		c(r, &st)
	}
	r.Heed(&st, r.Suspicion)
	return r
}

func TestWhatWitnessesSayIsCounted(t *testing.T) {
	suspected := lock("suspected", time.Hour)
	suspected.Heed(nil, &metadata.Statement{Lock: "suspected", UUID: suspected.UUID, Token: suspected.Token,
		Cause: metadata.CausePodDeleted, Witness: metadata.WitnessKubernetes})
	disputed := stated("disputed", metadata.WitnessHost, func(r *metadata.Record, _ *metadata.Statement) {
		r.Alive = &metadata.Alive{Revision: 10}
	})
	w := newWorld(lock("calm", time.Hour), suspected, disputed, stated("dead", metadata.WitnessHost),
		stated("unknown when", metadata.WitnessKubernetes, func(_ *metadata.Record, s *metadata.Statement) {
			s.EndedAt = metadata.Time{}
		}),
		stated("evil", "\x1b[2J"))
	counts := `
# HELP unlocker_disputed_deaths Held locks whose holder called alive after a witness had stated its death.
# TYPE unlocker_disputed_deaths gauge
unlocker_disputed_deaths 1
# HELP unlocker_statements Held locks whose holder a witness says has ended, for certain (death) or not (suspicion), by witness.
# TYPE unlocker_statements gauge
unlocker_statements{kind="death",witness="host"} 2
unlocker_statements{kind="death",witness="kubernetes"} 1
unlocker_statements{kind="death",witness="other"} 1
unlocker_statements{kind="suspicion",witness="host"} 0
unlocker_statements{kind="suspicion",witness="kubernetes"} 1
unlocker_statements{kind="suspicion",witness="other"} 0
`
	expect(t, lockmetrics.New(w.config()), counts+`
# HELP unlocker_lock_holder_ended_timestamp_seconds When the holder of an abandoned lock ended, by the witness's clock.
# TYPE unlocker_lock_holder_ended_timestamp_seconds gauge
unlocker_lock_holder_ended_timestamp_seconds{cause="rebooted",hostname="host-1",lock="dead",owner="billing"} 1.69999994e+09
unlocker_lock_holder_ended_timestamp_seconds{cause="rebooted",hostname="host-1",lock="evil",owner="billing"} 1.69999994e+09
unlocker_lock_holder_ended_timestamp_seconds{cause="rebooted",hostname="host-1",lock="unknown when",owner="billing"} 1.699999999e+09
# HELP unlocker_locks Held locks by state.
# TYPE unlocker_locks gauge
unlocker_locks{state="abandoned"} 3
unlocker_locks{state="alerting"} 0
unlocker_locks{state="expired"} 0
unlocker_locks{state="held"} 3
unlocker_locks{state="malformed"} 0
`, "unlocker_disputed_deaths", "unlocker_statements", "unlocker_lock_holder_ended_timestamp_seconds", "unlocker_locks")

	without := w.config()
	without.Series = lockmetrics.SeriesNone
	expect(t, lockmetrics.New(without), counts, "unlocker_disputed_deaths", "unlocker_statements",
		"unlocker_lock_holder_ended_timestamp_seconds")
	limited := w.config()
	limited.SeriesLimit = 2
	if n := testutil.CollectAndCount(lockmetrics.New(limited), "unlocker_lock_holder_ended_timestamp_seconds"); n != 2 {
		t.Errorf("%d series, want 2", n)
	}
}

func TestAnAbandonedHoldHasAnEndOfItsOwn(t *testing.T) {
	c := lockmetrics.New(newWorld().config())
	c.Ended(lock("a", time.Hour), &metadata.Ending{Ended: metadata.EndedAbandoned})
	c.Ended(lock("a", time.Hour), &metadata.Ending{Ended: metadata.EndedAutoUnlocked})
	if n := testutil.CollectAndCount(c, "unlocker_hold_seconds"); n != 5 {
		t.Errorf("%d kinds of ends, want 5", n)
	}
}
