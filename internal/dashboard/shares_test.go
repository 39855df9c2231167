package dashboard_test

import (
	"strings"
	"testing"
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

func TestALockThatSeveralHoldIsFoundByItsName(t *testing.T) {
	s := pool()
	d := s.dashboard(t)
	wantWords(t, ok(t, d, "/?q=waiters:%3E1"), "3 of 8 locks")
	wantWords(t, ok(t, d, "/?q=pool"), "Go to lock pool")
	data, _ := fetch[[]lock](t, d, "/api/v1/locks?sort=name&q=owner:batch")
	if data[0]["share_of"] != "pool" || data[0]["waiters"] != 2.0 {
		t.Errorf("the API says %v", data[0])
	}
	wantWords(t, ok(t, d, "/waiting?q=owner:batch"), "pool")
	wantWords(t, ok(t, d, "/waiting?q=owner:nobody"), "Nobody waits for a lock that matches")
}

func TestPageOfALockThatSeveralHoldGoesOnWithoutEtcdAndWithoutHolders(t *testing.T) {
	s := pool()
	d := s.dashboard(t)
	wantWords(t, ok(t, d, "/lock?name=catalogue"), "Several can hold this lock: 2 readers.", "Waiting 1", "writer")
	wantWords(t, ok(t, d, "/lock?name=ledger"), "exclusive")
	one, _ := fetch[struct {
		Permits, Limit float64
		State          string
		Holders        []lock
		Queue          []any
	}](t, d, "/api/v1/lock?name=pool")
	if one.Permits != 4 || one.Limit != 5 || one.State != "alerting" || len(one.Holders) != 3 || len(one.Queue) != 2 {
		t.Errorf("the API says %v", one)
	}
	s.away = errAway
	wantWords(t, ok(t, d, "/lock?name=pool"), "4 of 5 permits")
	wantWords(t, ok(t, d, "/lock?name=pool%232"), "Waiting for pool 2")
	s.away = nil
	s.locks = nil
	s.tick(2 * time.Second)
	wantWords(t, ok(t, d, "/lock?name=pool"), "Nobody holds this lock at the moment. 2 waiters are in line; the first "+
		"one takes it now.")
}

func TestHoldersThatCountOtherPermitsAreTold(t *testing.T) {
	s := pool()
	s.add(hold{name: "pool#5", owner: "new", host: "n", held: time.Minute, alert: time.Hour, unlock: time.Hour,
		attributes: map[string]string{"kind": "semaphore", "limit": "8"}})
	wantWords(t, ok(t, s.dashboard(t), "/lock?name=pool"), "5 of 8 permits taken by 4 holders, 3 free",
		"do not agree how many permits there are: another one counts 5")
}

func TestPermitsThatOthersCanGiveBackAreNoCycle(t *testing.T) {
	s := pool() // media-0 has a permit; its neighbour waits for one and holds what media-0 wants
	s.add(hold{name: "wanted", owner: "hungry", host: "hungry-0", held: time.Minute, alert: time.Hour,
		unlock: time.Hour})
	s.wants("hungry", "hungry-0", "pool")
	s.wants("media", "media-0", "wanted")
	if page := ok(t, s.dashboard(t), "/waiting"); strings.Contains(page, "forever") {
		t.Errorf("two other holders could give a permit back, and it is a cycle: %s", words(page))
	}
	s.wants("media", "media-1", "wanted")
	s.wants("batch", "batch-1", "wanted")
	d := s.dashboard(t)
	for _, url := range []string{"/waiting", "/lock?name=pool", "/lock?name=pool%231", "/lock?name=wanted"} {
		wantWords(t, ok(t, d, url), "for each other",
			"hungry on hungry-0:17 waits for pool, held by batch on batch-1:17 and media on media-0:17 and media on "+
				"media-1:17",
			"media on media-1:17 waits for wanted, held by hungry on hungry-0:17")
	}
}

func TestOneReaderWhoWaitsForAWriterIsACycle(t *testing.T) {
	s := pool()
	s.add(hold{name: "wanted", owner: "hungry", host: "hungry-0", held: time.Minute, alert: time.Hour,
		unlock: time.Hour})
	s.wants("hungry", "hungry-0", "catalogue")
	s.wants("shop", "shop-2", "wanted")
	wantWords(t, ok(t, s.dashboard(t), "/waiting"), "forever",
		"hungry on hungry-0:17 waits for catalogue, held by shop on shop-2:17 shop on shop-2:17 waits for wanted",
		"For 0s so far. Nothing ends it automatically: one of them has to give up or lose a lock.")
}

// wants makes a process, which may hold locks, wait for one.
func (s *scene) wants(owner, host, lock string) {
	s.queues[lock] = append(s.queues[lock], s.waiter(lock, owner, host, 17))
}
