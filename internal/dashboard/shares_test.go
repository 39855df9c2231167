package dashboard_test

import (
	"time"
)

// pool is a semaphore of five permits of which four are taken by three holders, a catalogue with two readers, and a
// writer that has the ledger to itself.
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

// wants makes a process, which may hold locks, wait for one.
func (s *scene) wants(owner, host, lock string) {
	s.queues[lock] = append(s.queues[lock], s.waiter(lock, owner, host, 17))
}
