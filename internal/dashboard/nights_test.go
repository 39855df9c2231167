package dashboard_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/dashboard/app"
	"github.com/clustermutex/unlocker/internal/diagnosis"
	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

const (
	abandoned = "billing/invoice-run"
	quiet     = "drm/rotate-keys"
)

// mourning is a night in which two holders died and a third may have.
func mourning() *scene {
	s := busy()
	s.state(abandoned, 40*time.Second)
	s.state("drm/rotate-keys-2", 2*time.Hour, func(st *metadata.Statement) {
		st.Cause = metadata.CauseProcessEnded
		st.ExitCode = nil
		st.Detail = ""
		st.Signal = "SIGKILL"
		st.Witness = metadata.WitnessHost
	})
	s.suspect(quiet, time.Minute, func(st *metadata.Statement) {
		st.Cause = metadata.CausePodDeleted
		st.ExitCode = nil
		st.Detail = ""
		st.Reason = "pod drm/drm-9 was deleted by force"
	})
	return s
}

func unlocksAbandoned(c *app.Config) {
	publishing(func(p *staleness.Policy) { p.UnlockAbandoned = true })(c)
}

func unlocksAbandonedSoon(c *app.Config) {
	publishing(func(p *staleness.Policy) {
		p.UnlockAbandoned = true
		p.AbandonedGrace = time.Second
	})(c)
}

// beating adds a lock whose heartbeat extends a deadline of a minute every 20 seconds, last at the given age.
func beating(s *scene, name string, age time.Duration) {
	at := func(ago time.Duration) string { return metadata.FormatTime(s.now.Add(-ago)) }
	s.put(name,
		metadata.Field{Name: "uuid", Value: uuid(name), Version: 1}, metadata.Field{Name: "owner", Value: "search",
			Version: 1},
		metadata.Field{Name: "locked_at", Value: at(age + 10*time.Minute), Version: 1},
		metadata.Field{Name: "alive", Value: lockrecord.FormatAlive(s.now.Add(-age), ""), Version: 30},
		metadata.Field{Name: "alert_at", Value: at(age - time.Minute), Version: 31},
		metadata.Field{Name: "auto_unlock_at", Value: at(age - time.Minute), Version: 31})
}

// settling is a scene in which 12 processes wait for a lock whose holder has been silent for 19 minutes.
func settling() *scene {
	s := newScene()
	s.add(hold{name: "orders/settle", owner: "orders", host: "orders-7c9d8f6b5-x2k7p", purpose: "settlement of the day",
		held: 50 * time.Minute, alert: -18 * time.Minute, unlock: 4 * time.Minute, backtrace: rubyTrace,
		attributes: map[string]string{"alive": lockrecord.FormatAlive(s.now.Add(-19*time.Minute), "4,410 of 12,002")}})
	for i := range 12 {
		s.wait("orders/settle", fmt.Sprint("shop-", i), 25*time.Minute-time.Duration(i)*time.Second)
	}
	return s
}

const settle = "orders/settle"

// neglected is a lock that has been free for 46 minutes, while three wait.
func neglected() *scene {
	s := busy()
	s.wait(settle, "orders", 50*time.Minute)
	s.wait(settle, "billing", 47*time.Minute)
	s.wait(settle, "ops", time.Minute)
	s.unclaimed = []diagnosis.Unclaimed{{Name: settle, Since: s.now.Add(-46 * time.Minute), Waiters: 3,
		First: s.queues[settle][0]}}
	return s
}

// pool is a semaphore with four of five permits taken by three holders, a catalogue with two readers, and a ledger with
// a writer.
func pool() *scene {
	s := newScene()
	permits := func(n string) map[string]string {
		return map[string]string{"kind": "semaphore", "permits": n, "limit": "5"}
	}
	s.add(hold{name: "pool#1", owner: "media", host: "media-0", held: 9 * time.Minute, alert: -time.Minute,
		unlock: time.Hour, attributes: permits("1")})
	s.add(hold{name: "pool#2", owner: "media", host: "media-1", held: time.Minute, alert: time.Hour,
		unlock: 2 * time.Hour, attributes: permits("1")})
	s.add(hold{name: "pool#10", owner: "batch", host: "batch-1", held: time.Minute, alert: time.Hour,
		unlock: 2 * time.Hour, attributes: permits("2")})
	s.add(hold{name: "pool#3rd floor", owner: "facility", host: "f-0", held: time.Minute, alert: time.Hour,
		unlock: 2 * time.Hour})
	// a name proves nothing
	s.add(hold{name: "pool#4", owner: "other", host: "o-0", held: time.Minute, alert: time.Hour, unlock: 2 * time.Hour})
	s.wait("pool", "hungry", 3*time.Minute)
	s.wait("pool", "later", time.Minute)
	for _, name := range []string{"catalogue#1", "catalogue#2"} {
		s.add(hold{name: name, owner: "shop", host: "shop-" + name[10:], held: time.Minute, alert: time.Hour,
			unlock: 2 * time.Hour, attributes: map[string]string{"kind": "shared"}})
	}
	s.wait("catalogue", "writer", 2*time.Minute)
	s.add(hold{name: "ledger", owner: "books", host: "books-0", held: time.Minute, alert: time.Hour,
		unlock: 2 * time.Hour, attributes: map[string]string{"kind": "exclusive"}})
	return s
}

// wants makes a process wait for a lock.
func (s *scene) wants(owner, host, lock string) {
	s.queues[lock] = append(s.queues[lock], s.waiter(lock, owner, host, 17))
}

// gone is a scene whose etcd last answered a minute ago, with a lock whose alert and one whose auto-unlock passed
// since then.
func gone() *scene {
	s := newScene()
	s.fresh = protocol.Freshness{HeardAt: s.now.Add(-time.Minute), ProgressInterval: s.fresh.ProgressInterval,
		Revision: 918273, Class: "no leader", Cause: "etcd has no leader, says etcd-0:2379"}
	s.away = errAway
	s.add(hold{name: "alert/passed", owner: "o", held: 10 * time.Minute, alert: -50 * time.Second, unlock: time.Hour})
	s.add(hold{name: "unlock/passed", owner: "o", held: 10 * time.Minute, alert: -5 * time.Minute,
		unlock: -40 * time.Second})
	s.add(hold{name: "all/ahead", owner: "o", held: 10 * time.Minute, alert: 5 * time.Minute, unlock: time.Hour})
	s.wait("all/ahead", "waiter", 3*time.Minute)
	return s
}

// acknowledged is a scene in which ann acknowledged stuck until 03:42:41.
func acknowledged(t testing.TB) *scene {
	s := lived(t)
	s.acknowledge(stuck, "ann", "looking at the <disk>", 30*time.Minute)
	return s
}

// acknowledge puts an acknowledgement into the record of a lock.
func (s *scene) acknowledge(name, by, note string, left time.Duration) {
	r := s.documents[name]
	a := metadata.Acknowledgement{UUID: r.UUID, Token: s.revision + 1, By: by, Source: "cli", Note: note,
		At: metadata.Time{Time: s.now.Add(-5 * time.Minute)}, Until: metadata.Time{Time: s.now.Add(left)}}
	s.put(name, append(r.Fields, metadata.Field{Name: lockrecord.FieldAcknowledged, Value: protocol.Marshal(a)})...)
}

// asked is a scene in which the holder of stuck was asked to finish and got more time.
func asked(t testing.TB) *scene {
	s := lived(t)
	s.add(hold{name: stuck, owner: "billing", host: "billing-7f9c", purpose: "nightly invoices", held: 22 * time.Minute,
		alert: -time.Minute, unlock: time.Hour})
	r := s.documents[stuck]
	at := metadata.Time{Time: s.now.Add(-2 * time.Minute)}
	s.put(stuck, append(r.Fields,
		metadata.Field{Name: "asked", Value: protocol.Marshal(metadata.FinishRequest{UUID: r.UUID, Token: r.Token + 1,
			By: "ann", Source: "cli", At: at, Reason: "the <deploy> waits"})},
		metadata.Field{Name: "extended", Value: protocol.Marshal(metadata.MoreTime{UUID: r.UUID, Token: r.Token + 1,
			By: "bob", Source: "basic", At: at, Reason: "the disk is slow", Seconds: 1800})})...)
	return s
}

// blocking is a scene of equally late locks with different waiters, and of two malformed ones.
func blocking() *scene {
	s := newScene()
	for _, name := range []string{"calm", "one", "two/late", "two/early", "many"} {
		s.add(hold{name: name, owner: "o-" + name, held: time.Hour, alert: -time.Minute, unlock: 2 * time.Hour})
	}
	s.add(hold{name: "nobody's", held: time.Hour, alert: -2 * time.Minute, unlock: time.Hour})
	for _, name := range []string{"odd", "odd too"} {
		s.put(name, metadata.Field{Name: "uuid", Value: uuid(name)}, metadata.Field{Name: "alert_at", Value: "soon"})
	}
	s.wait("odd", "w", 2*time.Hour)
	s.wait("one", "w", time.Hour)
	s.wait("two/late", "w", time.Minute)
	s.wait("two/late", "w", time.Minute)
	s.wait("two/early", "w", 2*time.Minute)
	s.wait("two/early", "w", time.Minute)
	for range 5 {
		s.wait("many", "w", time.Second)
	}
	return s
}
