package mutex

import (
	"sync"
	"time"
)

// maxHanded is how many hand-overs a client remembers, for waiters that joined behind a holder but learn of it only
// after the release.
const maxHanded = 64

// A release has a head start before the turn that follows it: more after each turn that was refused because it arrived
// first, less after each that was not. So about one turn in seventy is sent in vain.
const (
	minHeadStart = 100 * time.Microsecond
	maxHeadStart = 20 * time.Millisecond
)

// place is what one of this client's own attempts has in a queue: a ticket, which it waits with and then holds with.
type place struct {
	lock      string
	uuid      string
	releasing chan struct{} // closed when the release of the hold is about to be sent
	ended     chan struct{} // closed when the client knows that the ticket is gone, or gives it up
	handed    bool          // the ticket went together with the hold; to be read when ended is closed

	// What a waiter that gave up knew of those ahead of it: nobody is between them and whoever comes after it. To be
	// read when ended is closed.
	before string
	first  bool
}

// places are those of a client. A waiter behind another of the same client needs no watch to learn of its end: the
// answer to the release says so, no later than an event would. What it learns is a hint, as an event is: the
// transaction that takes the lock compares everything. An end that the client itself does not notice is found by the
// next look at the queue.
type places struct {
	mu     sync.Mutex
	all    map[string]*place // by uuid: those that have not ended, and the last that were handed over
	lines  map[string]int    // by lock: how many of those in all have not ended
	handed [maxHanded]string // the latter, the oldest at next
	next   int
	lead   time.Duration // the head start of the last release
}

// begin has a lease serve the attempt with this uuid, whose ticket may be put from now on.
func (p *places) begin(l *lease, lock, uuid string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l.place != nil && l.place.uuid == uuid {
		return
	}
	p.end(l, false)
	l.attempt = uuid
	l.place = &place{lock: lock, uuid: uuid, releasing: make(chan struct{}), ended: make(chan struct{})}
	if p.all == nil {
		p.all = map[string]*place{}
		p.lines = map[string]int{}
	}
	p.all[uuid] = l.place
	p.lines[lock]++
}

// any reports whether one of the client's attempts waits for a lock, or holds it after it waited.
func (p *places) any(lock string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lines[lock] > 0
}

// bequeath keeps what a waiter that gives up knows of those ahead, for whoever comes after it.
func (p *places) bequeath(l *lease, before string, first bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l.place != nil {
		l.place.before = before
		l.place.first = first
	}
}

// release says that the release of the hold that a lease serves is about to be sent.
func (p *places) release(l *lease) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l.place != nil {
		close(l.place.releasing)
	}
}

// headStart is how long a release is to be under way before the turn of the next waiter follows it.
func (p *places) headStart() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lead = min(max(p.lead, minHeadStart), maxHeadStart)
	return p.lead
}

// followed adapts the head start to what became of a turn that followed a release.
func (p *places) followed(refused bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if refused {
		p.lead *= 2
	} else {
		p.lead -= p.lead / 100
	}
}

// leave ends the place of the attempt that a lease serves, if it serves one, and returns the uuid of the last that it
// served. handed says that the ticket was deleted together with the hold.
func (p *places) leave(l *lease, handed bool) (attempt string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.end(l, handed)
	return l.attempt
}

func (p *places) end(l *lease, handed bool) {
	if l.place == nil {
		return
	}
	l.place.handed = handed
	close(l.place.ended)
	if p.lines[l.place.lock]--; p.lines[l.place.lock] == 0 {
		delete(p.lines, l.place.lock)
	}
	if handed {
		delete(p.all, p.handed[p.next])
		p.handed[p.next] = l.place.uuid
		p.next = (p.next + 1) % maxHanded
	} else {
		delete(p.all, l.place.uuid)
	}
	l.place = nil
}

// of returns the place with this uuid; nil if it is not one of this client's own, or ended without a hand-over.
func (p *places) of(uuid string) *place {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.all[uuid]
}
