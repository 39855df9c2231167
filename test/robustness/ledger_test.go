package robustness

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// violation is something that the protocol rules out.
type violation struct {
	rule, text string
}

func (v violation) String() string { return v.rule + ": " + v.text }

// The rules. Each names what a mutant of the protocol breaks.
const (
	ruleLinear    = "not linearizable"
	rulePermits   = "more was taken of a lock than there is"
	ruleOneRecord = "a held lock was taken"
	ruleCancelled = "a cancelled attempt got through"
	ruleQueue     = "the queue was passed"
	ruleTicket    = "a turn was taken without a place"
	ruleDeadline  = "a deadline moved back"
	ruleKeys      = "keys of a hold that is over were written"
	ruleRemoval   = "a hold was ended by somebody who may not"
	ruleEarly     = "a lock was removed early"
	ruleLate      = "a dead holder's lock stayed too long"
	ruleHistory   = "a removal without exactly one entry in the history"
	ruleLog       = "a removal without exactly one line in the log"
	ruleToken     = "a token did not grow"
	ruleFence     = "the fence let a write of nobody in"
	ruleGuard     = "a guarded write of a former holder got through"
	ruleBelief    = "two believed to hold a lock at a time"
	ruleKeeper    = "a live holder lost its lock"
	ruleDead      = "a holder was taken for dead"
	ruleLeft      = "something was left behind"
	ruleView      = "the dashboard does not show what etcd holds"
	ruleAnswer    = "a client was told what etcd does not know of"
	ruleTogether  = "some of several locks were taken"
	ruleCount     = "a write of an acquisition was done without it, or twice"
	rulePeriod    = "a period was run twice, or changed by somebody who may not"
	ruleTask      = "a task was changed by somebody who does not have it"
	ruleRun       = "the run itself failed"
)

// hold is one hold as etcd knows it.
type hold struct {
	lock, uuid string
	token      int64
	question   string // that took it
	way        string
	seen       int64 // stamp: when the recorder heard of it
	kind       string
	permits    int
	names      int // of locks that were asked for together
	period     string
	writes     []write

	gone      int64 // stamp: when the recorder heard of its end; 0 while it stands
	goneBy    string
	ended     int64 // revision
	ending    *metadata.Ending
	cancelled bool
	wiped     bool  // deleted by hand, without a note
	touched   int64 // revision of the last write of alive or of the deadline
	detached  bool  // from its process
}

// write is one setting of the deadlines.
type write struct {
	revision int64
	at       int64
	deadline time.Time
	alive    time.Time
}

func (h *hold) id() holdID { return holdID{h.uuid, h.token} }

// part is how much of the lock it has.
func (h *hold) part() int {
	switch h.kind {
	case metadata.HoldsPermits:
		return h.permits
	case metadata.HoldsExclusive:
		return whole(h.lock)
	}
	return 1
}

// deadline is the last one.
func (h *hold) deadline() time.Time { return h.writes[len(h.writes)-1].deadline }

// ticketState is a place in a queue.
type ticketState struct {
	created int64
	holding bool
}

// ledger goes through etcd's history and knows at each revision what there was.
type ledger struct {
	layout protocol.Layout
	found  func(rule, format string, args ...any)

	holds   []*hold
	now     map[string]*hold             // by lock
	fields  map[string]map[string]string // by lock
	tickets map[string]map[string]ticketState
	tails   map[string]string
	marks   map[string]bool // of cancelled attempts
	periods map[string]period
	tasks   map[string]string // states by lock
	counts  map[string]int64  // revisions by lock
	endings map[holdID]int    // entries in the history: a late sending of a dead client can take a lock once more
	actions map[string]protocol.Action

	deaths     map[string]statement // by uuid, what etcd has
	statements []statement          // of witnesses
}

func newLedger(found func(rule, format string, args ...any)) *ledger {
	layout, err := protocol.NewLayout(prefix)
	if err != nil {
		panic(err)
	}
	return &ledger{
		layout: layout, found: found, now: map[string]*hold{}, fields: map[string]map[string]string{},
		tickets: map[string]map[string]ticketState{},
		tails:   map[string]string{}, marks: map[string]bool{}, periods: map[string]period{},
		tasks:  map[string]string{},
		counts: map[string]int64{}, endings: map[holdID]int{}, actions: map[string]protocol.Action{},
		deaths: map[string]statement{},
	}
}

// read goes through all changes, one revision, which is one transaction, after the other.
func (g *ledger) read(changes []change) {
	for len(changes) > 0 {
		n := 1
		for n < len(changes) && changes[n].revision == changes[0].revision {
			n++
		}
		g.transaction(changes[:n])
		changes = changes[n:]
	}
}

// transaction checks what one transaction did, then does it.
func (g *ledger) transaction(changes []change) {
	byKind := map[protocol.Kind][]keyed{}
	locks := map[string][]keyed{}
	for _, c := range changes {
		k := keyed{c, g.layout.Parse(c.key)}
		if k.Kind == protocol.KindField {
			locks[k.Lock] = append(locks[k.Lock], k)
		}
		byKind[k.Kind] = append(byKind[k.Kind], k)
	}
	g.leases(changes)
	for _, k := range byKind[protocol.KindDeath] {
		g.stated(k)
	}
	was := maps.Clone(g.now)
	for _, lock := range sorted(locks) {
		g.record(lock, locks[lock], byKind)
	}
	g.together(changes[0].revision)
	for _, k := range byKind[protocol.KindTicket] {
		g.ticket(k)
	}
	for _, k := range byKind[protocol.KindTail] {
		g.tails[k.Lock] = k.value
		if k.deleted {
			delete(g.tails, k.Lock)
		}
	}
	for _, k := range byKind[protocol.KindCancelled] {
		g.marks[k.ID] = !k.deleted
	}
	for _, k := range byKind[protocol.KindHistory] {
		if !k.deleted {
			if e, err := protocol.Unmarshal[metadata.Ending]([]byte(k.value)); err == nil {
				g.endings[holdID{k.ID, e.Token}]++
			}
		}
	}
	for _, k := range byKind[protocol.KindForeign] {
		g.guarded(k)
		g.counted(k)
	}
	for _, k := range byKind[protocol.KindPeriod] {
		g.periodOf(k, was)
	}
	for _, k := range byKind[protocol.KindTask] {
		g.task(k, was)
	}
	g.audits(byKind[protocol.KindAudit])
}

// keyed is a change with its key taken apart.
type keyed struct {
	change
	protocol.Key
}

func sorted[V any](m map[string]V) []string {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// leases expects a lease with everything that must not stay forever.
func (g *ledger) leases(changes []change) {
	for _, c := range changes {
		switch k := g.layout.Parse(c.key); k.Kind {
		case protocol.KindField, protocol.KindForeign, protocol.KindPeriod, protocol.KindTask:
		default:
			if !c.deleted && !c.lease {
				g.found(ruleLeft, "%s was written without a lease at revision %d", c.key, c.revision)
			}
		}
	}
}

// record checks what a transaction did to the record of one lock.
func (g *ledger) record(lock string, changes []keyed, txn map[protocol.Kind][]keyed) {
	put := map[string]keyed{}
	gone := map[string]keyed{}
	for _, k := range changes {
		if k.deleted {
			gone[k.ID] = k
		} else {
			put[k.ID] = k
		}
	}
	switch {
	case put[metadata.FieldUUID].value != "":
		g.taken(lock, put, txn)
	case gone[metadata.FieldUUID].deleted:
		g.ended(g.now[lock], changes[0].change, txn)
	case len(put) > 0:
		g.extended(lock, put)
	}
	fields := g.fields[lock]
	if fields == nil {
		fields = map[string]string{}
		g.fields[lock] = fields
	}
	for _, k := range changes {
		if fields[k.ID] = k.value; k.deleted {
			delete(fields, k.ID)
		}
	}
	if g.now[lock] == nil && len(fields) > 0 {
		g.found(ruleKeys, "%q has the keys %v and no uuid at revision %d", lock, sorted(fields), changes[0].revision)
	}
}

// taken checks an acquisition.
func (g *ledger) taken(lock string, put map[string]keyed, txn map[protocol.Kind][]keyed) {
	key := put[metadata.FieldUUID]
	h := &hold{lock: lock, uuid: key.value, token: key.revision, seen: key.at}
	if was := g.now[lock]; was != nil {
		g.found(ruleOneRecord, "%q was held by %s (token %d) when %s took it at revision %d", lock, was.uuid, was.token,
			h.uuid, h.token)
		was.gone = key.at
		was.goneBy = "overwritten"
		was.ended = key.revision
	}
	var document struct {
		Op, Way, Kind, Period string
		Permits, Names        int
		Detached              bool
	}
	_ = json.Unmarshal([]byte(put[metadata.FieldMetadata].value), &document)
	h.question = document.Op
	h.way = document.Way
	h.kind = document.Kind
	h.permits = document.Permits
	h.names = document.Names
	h.period = document.Period
	if g.marks[h.uuid] {
		g.found(ruleCancelled, "%s took %q at revision %d after its cancel was committed", h.uuid, lock, h.token)
	}
	h.detached = document.Detached
	h.writes = append(h.writes, write{h.token, key.at, parseTime(put[metadata.FieldAutoUnlockAt].value),
		parseTime(put[metadata.FieldLockedAt].value)})
	g.now[lock] = h
	g.holds = append(g.holds, h)
	g.ran(h, txn)
	if h.kind != "" {
		g.parts(h)
		return
	}
	g.order(h, txn)
}

// parts checks that who took a part of a lock left the others what they have.
func (g *ledger) parts(h *hold) {
	name := h.lock
	if base, _, isShare := metadata.ParseShare(name); isShare {
		name = base
	}
	permits := 0
	readers := 0
	for lock, other := range g.now {
		if base, _, isShare := metadata.ParseShare(lock); isShare && base == name {
			permits += other.permits
			readers++
		}
	}
	switch writer := g.now[name]; {
	case writer != nil && readers > 0:
		g.found(rulePermits, "%s took %q at revision %d: %d have a part of it beside who has all of it", h.uuid, h.lock,
			h.token, readers)
	case h.kind == metadata.HoldsPermits && permits > poolLimit:
		g.found(rulePermits, "%s took %q at revision %d: %d permits of %d are taken", h.uuid, h.lock, h.token, permits,
			poolLimit)
	}
}

// order checks that an acquisition kept to the queue.
func (g *ledger) order(h *hold, txn map[protocol.Kind][]keyed) {
	for _, k := range txn[protocol.KindTicket] {
		if k.deleted || k.Lock != h.lock {
			continue
		}
		mine, had := g.tickets[h.lock][h.uuid]
		if !had {
			g.found(ruleTicket, "%s took its turn of %q at revision %d without a ticket", h.uuid, h.lock, h.token)
		}
		for id, other := range g.tickets[h.lock] {
			if id != h.uuid && other.created < mine.created {
				g.found(ruleQueue, "%s took its turn of %q at revision %d while the older ticket %s was there", h.uuid,
					h.lock, h.token, id)
			}
		}
		return
	}
	tail, queued := g.tails[h.lock]
	for _, k := range txn[protocol.KindTail] {
		if k.deleted && k.Lock == h.lock {
			queued = false // a tail behind which nobody queued
			if n := len(g.tickets[h.lock]); n > 0 {
				g.found(ruleQueue, "%s took %q at revision %d past a tail with %d tickets before it", h.uuid, h.lock,
					h.token, n)
			}
		}
	}
	if queued && h.way != opBarge && h.way != byHand {
		g.found(ruleQueue, "%s took %q at revision %d past the queue that ends with %s", h.uuid, h.lock, h.token, tail)
	}
}

// extended checks writes to a record that is there.
func (g *ledger) extended(lock string, put map[string]keyed) {
	h := g.now[lock]
	if h != nil {
		h.detached = h.detached || put[metadata.FieldDetached].value != ""
		h.touched = max(h.touched, put[metadata.FieldAlive].revision, put[metadata.FieldAutoUnlockAt].revision)
	}
	deadline, isThere := put[metadata.FieldAutoUnlockAt]
	if h == nil || !isThere {
		return // the first is found by who calls this
	}
	w := write{deadline.revision, deadline.at, parseTime(deadline.value), parseTime(put[metadata.FieldAlive].value)}
	if _, says, _ := strings.Cut(put[metadata.FieldAlive].value, "at work for "); says != "" && says != h.uuid {
		g.found(ruleKeys, "%s extended %q at revision %d, which %s holds", says, lock, w.revision, h.uuid)
	}
	if !w.deadline.After(h.deadline()) {
		g.found(ruleDeadline, "%s of %q: from %v to %v at revision %d", h.uuid, lock, h.deadline(), w.deadline,
			w.revision)
	}
	h.writes = append(h.writes, w)
}

// ended notes how a hold ended. Whether it was allowed to is decided when all notes are read.
func (g *ledger) ended(h *hold, c change, txn map[protocol.Kind][]keyed) {
	if h == nil {
		return
	}
	h.gone = c.at
	h.ended = c.revision
	h.goneBy = "released"
	if g.marks[h.uuid] { // where the part that an attempt got is not known, the mark comes first
		h.cancelled = true
		h.goneBy = "cancelled"
	}
	for _, k := range txn[protocol.KindCancelled] {
		if !k.deleted && k.ID == h.uuid {
			h.cancelled = true
			h.goneBy = "cancelled"
		}
	}
	for _, k := range txn[protocol.KindHistory] {
		e, err := protocol.Unmarshal[metadata.Ending]([]byte(k.value))
		if err != nil || k.deleted || e.UUID != h.uuid || e.Lock != h.lock {
			continue
		}
		h.ending = &e
		h.goneBy = e.Ended
		if e.Token != h.token {
			g.found(ruleHistory, "the entry of %s says token %d, it was %d", h.uuid, e.Token, h.token)
		}
	}
	if h.goneBy == metadata.EndedAbandoned {
		g.proof(h)
	}
	delete(g.now, h.lock)
}

func (g *ledger) ticket(k keyed) {
	all := g.tickets[k.Lock]
	if all == nil {
		all = map[string]ticketState{}
		g.tickets[k.Lock] = all
	}
	if k.deleted {
		delete(all, k.ID)
		return
	}
	t, _ := protocol.Unmarshal[metadata.Ticket]([]byte(k.value))
	if _, had := all[k.ID]; !had && g.marks[k.ID] {
		g.found(ruleCancelled, "%s joined the queue of %q at revision %d after its cancel was committed", k.ID, k.Lock,
			k.revision)
	}
	all[k.ID] = ticketState{k.created, t.Holding}
}

// guarded checks a write to a key that only the holder may write.
func (g *ledger) guarded(k keyed) {
	lock, isResource := cutPrefix(k.key, resourcePrefix)
	if !isResource || k.deleted || strings.HasPrefix(k.key, countPrefix) {
		return
	}
	token, _ := strconv.ParseInt(k.value, 10, 64)
	if h := g.now[lock]; h == nil || h.token != token {
		g.found(ruleGuard, "token %d wrote to the key of %q at revision %d", token, lock, k.revision)
	}
}

func (g *ledger) audits(keys []keyed) {
	for _, k := range keys {
		if a, err := protocol.Unmarshal[protocol.Action]([]byte(k.value)); err == nil && !k.deleted {
			g.actions[a.UUID] = a
		}
	}
}

func cutPrefix(s, prefix string) (string, bool) {
	if len(s) < len(prefix) || s[:len(prefix)] != prefix {
		return s, false
	}
	return s[len(prefix):], true
}

// parseTime reads the time at the beginning of a value; none where there is none.
func parseTime(s string) time.Time {
	for i, c := range s {
		if c == ' ' {
			s = s[:i]
			break
		}
	}
	t, err := metadata.ParseTime(s)
	if err != nil {
		return time.Time{}
	}
	return t
}

func (h *hold) String() string {
	return fmt.Sprintf("%q of %s (token %d, taken by %s)", h.lock, h.uuid, h.token, h.question)
}
