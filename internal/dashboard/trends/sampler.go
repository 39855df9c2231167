// Package trends remembers who waited when, over the last day, and sums up for how much of each hour locks were held
// and waited for. Its memory is bounded: only locks with waiters take any.
package trends

import (
	"cmp"
	"slices"
	"sync"
	"time"
)

// A day is remembered in slots.
const (
	Slot  = 5 * time.Minute
	Slots = 24 * 12
	every = 15 * time.Second // how often is looked
)

// The most that is remembered: a series takes 1 kB, so all of them together take 6 MB at most, however many locks there
// are. What has been quiet for longest makes way.
const (
	maxLocks  = 5000
	maxOwners = 1000
)

// Point is how many waited within a slot.
type Point struct {
	At      time.Time // the beginning of the slot
	Known   bool      // somebody looked
	Most    int       // that waited at a time
	Waiting float64   // the share of the looks at which somebody waited
}

// Waiting is how many wait for a lock, and who holds it: nobody, or several owners.
type Waiting struct {
	Lock   string
	Owners []string
	N      int
}

// Sampler looks at the queues again and again. The zero Sampler has seen nothing.
type Sampler struct {
	mu     sync.Mutex
	locks  map[string]*series
	owners map[string]*series
	looks  [Slots]uint8 // by slot, as of now
	slot   int64        // the current one, counted from 1970
	last   time.Time    // of the looks
	began  time.Time
	full   map[bool]bool // in this look: there is no room for more locks, or owners (true)
}

// series is one lock or owner. Slots are kept in a ring, by their number.
type series struct {
	most    [Slots]uint16
	waiting [Slots]uint8 // looks at which somebody waited
	slot    int64        // the newest that is up to date; later ones are zero
}

// Due reports whether it is time to look again.
func (s *Sampler) Due(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return now.Sub(s.last) >= every || now.Before(s.last)
}

// Look notes who waits now.
func (s *Sampler) Look(now time.Time, all []Waiting) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.locks == nil {
		s.locks = map[string]*series{}
		s.owners = map[string]*series{}
		s.began = now
	}
	s.last = now
	s.advance(number(now))
	count(&s.looks[s.slot%Slots])
	s.full = map[bool]bool{}
	owners := map[string]int{}
	for _, w := range all {
		if w.N == 0 {
			continue
		}
		s.note(false, w.Lock, w.N)
		for _, owner := range w.Owners {
			owners[owner] += w.N
		}
	}
	for owner, n := range owners {
		s.note(true, owner, n)
	}
}

// number is the number of the slot of a moment.
func number(t time.Time) int64 { return t.Unix() / int64(Slot/time.Second) }

// count adds one to a count that may be full.
func count(n *uint8) {
	if *n < 255 {
		*n++
	}
}

// advance begins new slots up to this one. A clock that went back begins nothing.
func (s *Sampler) advance(to int64) {
	if s.slot == 0 || to-s.slot >= Slots {
		clear(s.looks[:])
		s.slot = to
	}
	for s.slot < to {
		s.slot++
		s.looks[s.slot%Slots] = 0
	}
}

func (s *Sampler) note(owner bool, name string, n int) {
	all, most := s.locks, maxLocks
	if owner {
		all, most = s.owners, maxOwners
	}
	of := all[name]
	if of == nil {
		if len(all) >= most {
			if s.full[owner] || !s.makeRoom(all) {
				s.full[owner] = true
				return
			}
		}
		of = &series{slot: s.slot}
		all[name] = of
	}
	of.advance(s.slot)
	i := s.slot % Slots
	of.most[i] = max(of.most[i], uint16(min(n, 1<<16-1)))
	count(&of.waiting[i])
}

func (r *series) advance(to int64) {
	if to-r.slot >= Slots {
		*r = series{slot: to}
	}
	for r.slot < to {
		r.slot++
		r.most[r.slot%Slots] = 0
		r.waiting[r.slot%Slots] = 0
	}
}

// makeRoom forgets a tenth of the series: those for which nobody has waited for longest. It fails if somebody waits for
// all of them now.
func (s *Sampler) makeRoom(all map[string]*series) bool {
	type quiet struct {
		name string
		slot int64
	}
	var list []quiet
	for name, of := range all {
		if of.slot < s.slot {
			list = append(list, quiet{name, of.slot})
		}
	}
	slices.SortFunc(list, func(a, b quiet) int { return cmp.Compare(a.slot, b.slot) })
	for _, q := range list[:min(len(list), max(1, len(all)/10))] {
		delete(all, q.name)
	}
	return len(list) > 0
}

// Since is when the sampler looked first; zero if it never did.
func (s *Sampler) Since() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.began
}

// Lock is the last day of a lock, oldest first.
func (s *Sampler) Lock(name string, now time.Time) []Point { return s.points(false, name, now) }

// Owner is the last day of all locks of an owner together.
func (s *Sampler) Owner(name string, now time.Time) []Point { return s.points(true, name, now) }

func (s *Sampler) points(owner bool, name string, now time.Time) []Point {
	s.mu.Lock()
	defer s.mu.Unlock()
	of := s.locks[name]
	if owner {
		of = s.owners[name]
	}
	last := number(now)
	points := make([]Point, 0, Slots)
	for slot := last - Slots + 1; slot <= last; slot++ {
		p := Point{At: time.Unix(slot*int64(Slot/time.Second), 0).UTC()}
		if looks := s.looks[slot%Slots]; looks > 0 && slot <= s.slot && slot > s.slot-Slots {
			p.Known = true
			if of != nil && slot <= of.slot && slot > of.slot-Slots {
				p.Most = int(of.most[slot%Slots])
				p.Waiting = min(1, float64(of.waiting[slot%Slots])/float64(looks))
			}
		}
		points = append(points, p)
	}
	return points
}

// Either returns what two observers saw of the same: at any time, the one who saw more is right.
func Either(a, b []Point) []Point {
	if len(a) == 0 {
		return b
	}
	either := slices.Clone(a)
	for _, p := range b {
		i, found := slices.BinarySearchFunc(either, p, func(a, b Point) int { return a.At.Compare(b.At) })
		switch {
		case !found:
			either = slices.Insert(either, i, p)
		case !either[i].Known || p.Known && p.Waiting > either[i].Waiting:
			either[i] = p
		}
	}
	return either
}
