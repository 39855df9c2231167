package holdtimes

import (
	"slices"
	"time"

	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// Past collects holds and waits from changes of keys. Call Began and Joined for what was there at first, then Apply for
// each revision in order, then Locks.
type Past struct {
	layout protocol.Layout
	clocks map[string][]tick // by unlocker
	open   map[string]*hold  // by name of the lock or share
	over   []*hold
	queues map[string]*wait // by key of the ticket
	left   []*wait          // waiters that no longer wait and did not get the lock
}

// tick is the time of a revision by the clock of one unlocker.
type tick struct {
	revision int64
	at       time.Time
}

type hold struct {
	lock string // the whole lock
	uuid string

	from, to int64     // revisions; from = 0: before the first one, to = 0: it is still held
	since    time.Time // if from is 0: the holder's clock
	byOther  bool      // it was ended by somebody else
	beats    bool      // its auto-unlock was postponed without its alert, as heartbeats do

	alerts, unlocks []int64 // the revisions in which the holder postponed its alert, and its auto-unlock
	waited          time.Duration

	alertAfter, autoUnlockAfter time.Duration // as its record began; 0 = unknown
}

type wait struct {
	lock     string
	from, to int64     // as of a hold
	since    time.Time // by its own clock
}

// New returns an empty past of the keys of the layout.
func New(layout protocol.Layout) *Past {
	return &Past{layout: layout, clocks: map[string][]tick{}, open: map[string]*hold{}, queues: map[string]*wait{}}
}

// Began takes a hold that had begun before the first revision.
func (p *Past) Began(r *metadata.Record) {
	if r.Token == 0 || r.Misplaced {
		return
	}
	h := &hold{lock: r.Queue(), uuid: r.UUID, since: r.LockedAt}
	if r.Alive == nil && r.Extended == nil {
		h.promise(r)
	}
	p.open[r.Name] = h
}

// Joined takes a waiter that had joined before the first revision.
func (p *Past) Joined(w *metadata.Waiter) {
	p.queues[p.layout.Ticket(w.Lock, w.ID)] = &wait{lock: w.Lock, since: w.Since.Time}
}

// Apply takes all changes of one revision.
func (p *Past) Apply(revision int64, events []protocol.Event) {
	fields := map[string][]metadata.Field{} // what was put, by lock
	var gone, tickets []string
	ended := map[string]bool{} // the uuids of holds that somebody else ended
	for _, e := range events {
		switch key := p.layout.Parse(e.KV.Key); key.Kind {
		case protocol.KindField:
			if !e.Deleted {
				fields[key.Lock] = append(fields[key.Lock], e.KV.Field(key))
			} else if key.ID == metadata.FieldUUID {
				gone = append(gone, key.Lock)
			}
		case protocol.KindHistory:
			ended[key.ID] = !e.Deleted
		case protocol.KindUnlocker:
			p.tick(key.ID, revision, e.KV.Value)
		case protocol.KindTicket:
			if p.gotOrLeft(key, e) {
				tickets = append(tickets, e.KV.Key)
			}
		}
	}
	p.change(revision, gone, fields, ended)
	for _, ticket := range tickets {
		p.leave(ticket, revision)
	}
}

// change ends holds and then begins others, or takes what their holders wrote.
func (p *Past) change(revision int64, gone []string, fields map[string][]metadata.Field, ended map[string]bool) {
	for _, lock := range gone {
		p.end(lock, revision, ended)
	}
	for lock, put := range fields {
		if has(put, metadata.FieldUUID) {
			p.begin(lock, revision, put)
		} else {
			p.open[lock].postpone(revision, put)
		}
	}
}

func (p *Past) tick(unlocker string, revision int64, value []byte) {
	presence := protocol.ReadPresence(unlocker, value)
	ticks := p.clocks[unlocker]
	if presence == nil || len(ticks) > 0 && presence.Now.Before(ticks[len(ticks)-1].at) {
		return
	}
	p.clocks[unlocker] = append(ticks, tick{revision, presence.Now.Time})
}

// gotOrLeft takes a change of a ticket. It reports whether its owner no longer waits: it has the lock since this
// revision, or never gets it.
func (p *Past) gotOrLeft(key protocol.Key, e protocol.Event) bool {
	t, err := protocol.Unmarshal[metadata.Ticket](e.KV.Value)
	switch {
	case e.Deleted, err == nil && t.Holding:
		return true
	case err == nil && p.queues[e.KV.Key] == nil:
		p.queues[e.KV.Key] = &wait{lock: key.Lock, from: e.KV.ModRevision, since: t.Since.Time}
	}
	return false
}

// leave ends a wait that begin did not end.
func (p *Past) leave(ticket string, revision int64) {
	if w := p.queues[ticket]; w != nil {
		delete(p.queues, ticket)
		w.to = revision
		p.left = append(p.left, w)
	}
}

func (p *Past) begin(lock string, revision int64, put []metadata.Field) {
	r := metadata.DecodeRecord(lock, put)
	h := &hold{lock: r.Queue(), uuid: r.UUID, from: revision}
	h.promise(&r)
	key := p.layout.Ticket(h.lock, r.UUID)
	if w := p.queues[key]; w != nil {
		delete(p.queues, key)
		if !w.since.IsZero() && !r.LockedAt.IsZero() {
			h.waited = max(0, r.LockedAt.Sub(w.since)) // two times of one clock
		}
	}
	p.open[lock] = h // a hold whose end was not seen is left out
}

func (p *Past) end(lock string, revision int64, ended map[string]bool) {
	h := p.open[lock]
	if h == nil {
		return
	}
	delete(p.open, lock)
	h.to = revision
	h.byOther = ended[h.uuid]
	p.over = append(p.over, h)
}

// promise takes the times that the record names when it begins.
func (h *hold) promise(r *metadata.Record) {
	if r.LockedAt.IsZero() {
		return
	}
	if !r.AlertAt.IsZero() {
		h.alertAfter = max(0, r.AlertAt.Sub(r.LockedAt))
	}
	if !r.AutoUnlockAt.IsZero() {
		h.autoUnlockAfter = max(0, r.AutoUnlockAt.Sub(r.LockedAt))
	}
}

// postpone takes what the holder put during its hold. Time that somebody else gave is no sign of the holder.
func (h *hold) postpone(revision int64, put []metadata.Field) {
	if h == nil || has(put, metadata.FieldExtended) {
		return
	}
	alert, unlock := has(put, metadata.FieldAlertAt), has(put, metadata.FieldAutoUnlockAt)
	if alert {
		h.alerts = append(h.alerts, revision)
	}
	if unlock {
		h.unlocks = append(h.unlocks, revision)
	}
	h.beats = h.beats || unlock && !alert
}

func has(fields []metadata.Field, name string) bool {
	return slices.ContainsFunc(fields, func(f metadata.Field) bool { return f.Name == name })
}

// Span is the time that the past covers, by the clock of the unlocker that ran longest; 0 if none ran.
func (p *Past) Span() time.Duration {
	longest := time.Duration(0)
	for _, ticks := range p.clocks {
		longest = max(longest, ticks[len(ticks)-1].at.Sub(ticks[0].at))
	}
	return longest
}
