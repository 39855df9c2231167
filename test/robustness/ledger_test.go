package robustness

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

type violation struct{ Rule, Text string }

func (v violation) String() string { return v.Rule + ": " + v.Text }

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

type finder func(rule, format string, args ...any)

func collect(all *[]violation) finder {
	var mu sync.Mutex
	return func(rule, format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		*all = append(*all, violation{rule, fmt.Sprintf(format, args...)})
	}
}

type hold struct {
	lock, uuid string
	token      int64
	document
	writes []write

	gone    int64 // stamp: when the recorder heard of its end; 0 while it stands
	goneBy  string
	ended   int64 // revision
	ending  *metadata.Ending
	wiped   bool  // deleted by hand, without a note
	touched int64 // revision of the last write of alive or of the deadline
}

// document is what the record says.
type document struct {
	Op, Way, Kind, Period string // the question that took it, and how
	Permits, Names        int    // names of locks that were asked for together
	Detached              bool   // from its process
}

type write struct {
	revision int64
	at       int64
	deadline time.Time
	alive    time.Time
}

func (h *hold) id() holdID { return holdID{h.uuid, h.token} }

func (h *hold) part() int {
	switch h.Kind {
	case metadata.KindSemaphore:
		return h.Permits
	case metadata.KindExclusive, "":
		return whole(h.lock)
	}
	return 1
}

func (h *hold) deadline() time.Time { return h.writes[len(h.writes)-1].deadline }

type ledger struct {
	layout protocol.Layout
	found  finder

	holds   []*hold
	now     map[string]*hold             // by lock
	fields  map[string]map[string]string // by lock
	tickets map[string]map[string]int64  // create revisions by uuid, by lock
	tails   map[string]string
	marks   map[string]bool // of cancelled attempts
	periods map[string]period
	tasks   map[string]string // states by lock
	counts  map[string]int64  // revisions by lock
	endings map[holdID]int    // entries in the history: a late sending of a dead client can take a lock once more

	deaths     map[string]statement // by uuid, what etcd has
	statements []statement          // of witnesses
}

func newLedger(found finder) *ledger {
	layout, err := protocol.NewLayout(prefix)
	if err != nil {
		panic(err)
	}
	return &ledger{
		layout: layout, found: found, now: map[string]*hold{}, fields: map[string]map[string]string{},
		tickets: map[string]map[string]int64{}, tails: map[string]string{}, marks: map[string]bool{},
		periods: map[string]period{}, tasks: map[string]string{}, counts: map[string]int64{},
		endings: map[holdID]int{}, deaths: map[string]statement{},
	}
}

func entry[V any](all map[string]map[string]V, lock string) map[string]V {
	if all[lock] == nil {
		all[lock] = map[string]V{}
	}
	return all[lock]
}

func (g *ledger) read(changes []change) {
	for len(changes) > 0 {
		n := slices.IndexFunc(changes, func(c change) bool { return c.revision != changes[0].revision })
		if n < 0 {
			n = len(changes)
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
		byKind[k.Kind] = append(byKind[k.Kind], k)
		switch k.Kind {
		case protocol.KindField:
			locks[k.Lock] = append(locks[k.Lock], k)
		case protocol.KindForeign, protocol.KindPeriod, protocol.KindTask:
		default: // it must not stay forever
			if !c.deleted && !c.lease {
				g.found(ruleLeft, "%s was written without a lease at revision %d", c.key, c.revision)
			}
		}
	}
	each := func(kind protocol.Kind, do func(keyed)) {
		for _, k := range byKind[kind] {
			do(k)
		}
	}
	each(protocol.KindDeath, g.stated)
	was := maps.Clone(g.now)
	for _, lock := range slices.Sorted(maps.Keys(locks)) {
		g.record(lock, locks[lock], byKind)
	}
	g.together(changes[0].revision)
	each(protocol.KindTicket, g.ticket)
	each(protocol.KindTail, func(k keyed) {
		if g.tails[k.Lock] = k.value; k.deleted {
			delete(g.tails, k.Lock)
		}
	})
	each(protocol.KindCancelled, func(k keyed) { g.marks[k.ID] = !k.deleted })
	each(protocol.KindHistory, func(k keyed) {
		if e, err := protocol.Unmarshal[metadata.Ending]([]byte(k.value)); err == nil && !k.deleted {
			g.endings[holdID{k.ID, e.Token}]++
		}
	})
	each(protocol.KindForeign, g.guarded)
	each(protocol.KindForeign, g.counted)
	each(protocol.KindPeriod, func(k keyed) { g.periodOf(k, was) })
	each(protocol.KindTask, func(k keyed) { g.task(k, was) })
}

// keyed is a change with its key taken apart.
type keyed struct {
	change
	protocol.Key
}

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
	case put[lockrecord.FieldUUID].value != "":
		g.taken(lock, put, txn)
	case gone[lockrecord.FieldUUID].deleted:
		g.ended(g.now[lock], changes[0].change, txn)
	case len(put) > 0:
		g.extended(lock, put)
	}
	fields := entry(g.fields, lock)
	for _, k := range changes {
		if fields[k.ID] = k.value; k.deleted {
			delete(fields, k.ID)
		}
	}
	if g.now[lock] == nil && len(fields) > 0 {
		g.found(ruleKeys, "%q has the keys %v and no uuid at revision %d", lock, fields, changes[0].revision)
	}
}

func (g *ledger) taken(lock string, put map[string]keyed, txn map[protocol.Kind][]keyed) {
	key := put[lockrecord.FieldUUID]
	h := &hold{lock: lock, uuid: key.value, token: key.revision}
	if was := g.now[lock]; was != nil {
		g.found(ruleOneRecord, "%q was held by %s (token %d) when %s took it at revision %d", lock, was.uuid, was.token,
			h.uuid, h.token)
		was.gone = key.at
		was.goneBy = "overwritten"
		was.ended = key.revision
	}
	json.Unmarshal([]byte(put[lockrecord.FieldMetadata].value), &h.document)
	if g.marks[h.uuid] {
		g.found(ruleCancelled, "%s took %q at revision %d after its cancel was committed", h.uuid, lock, h.token)
	}
	h.writes = append(h.writes, write{h.token, key.at, parseTime(put[lockrecord.FieldAutoUnlockAt].value),
		parseTime(put[lockrecord.FieldLockedAt].value)})
	g.now[lock] = h
	g.holds = append(g.holds, h)
	ofLock := func(k keyed) bool { return !k.deleted && k.Lock == lock }
	if h.Way == opOnce && !slices.ContainsFunc(txn[protocol.KindPeriod], ofLock) {
		g.found(rulePeriod, "%v runs without a period", h)
	}
	if h.Kind != "" {
		g.parts(h)
		return
	}
	g.order(h, txn)
}

// parts checks that who took a part of a lock left the others what they have.
func (g *ledger) parts(h *hold) {
	name := baseOf(h.lock)
	permits := 0
	readers := 0
	for lock, other := range g.now {
		if lock != name && baseOf(lock) == name {
			permits += other.Permits
			readers++
		}
	}
	switch writer := g.now[name]; {
	case writer != nil && readers > 0:
		g.found(rulePermits, "%s took %q at revision %d: %d have a part of it beside who has all of it", h.uuid, h.lock,
			h.token, readers)
	case h.Kind == metadata.KindSemaphore && permits > poolLimit:
		g.found(rulePermits, "%s took %q at revision %d: %d permits of %d are taken", h.uuid, h.lock, h.token, permits,
			poolLimit)
	}
}

// order checks that an acquisition kept to the queue.
func (g *ledger) order(h *hold, txn map[protocol.Kind][]keyed) {
	ofLock := func(k keyed) bool { return !k.deleted && k.Lock == h.lock }
	if slices.ContainsFunc(txn[protocol.KindTicket], ofLock) {
		mine, had := g.tickets[h.lock][h.uuid]
		if !had {
			g.found(ruleTicket, "%s took its turn of %q at revision %d without a ticket", h.uuid, h.lock, h.token)
		}
		for id, other := range g.tickets[h.lock] {
			if id != h.uuid && other < mine {
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
	if queued && h.Way != opBarge && h.Way != byHand {
		g.found(ruleQueue, "%s took %q at revision %d past the queue that ends with %s", h.uuid, h.lock, h.token, tail)
	}
}

func (g *ledger) extended(lock string, put map[string]keyed) {
	h := g.now[lock]
	if h != nil {
		h.Detached = h.Detached || put[lockrecord.FieldDetached].value != ""
		h.touched = max(h.touched, put[lockrecord.FieldAlive].revision, put[lockrecord.FieldAutoUnlockAt].revision)
	}
	deadline, isThere := put[lockrecord.FieldAutoUnlockAt]
	if h == nil || !isThere {
		return // the first is found by who calls this
	}
	w := write{deadline.revision, deadline.at, parseTime(deadline.value), parseTime(put[lockrecord.FieldAlive].value)}
	if _, says, _ := strings.Cut(put[lockrecord.FieldAlive].value, "at work for "); says != "" && says != h.uuid {
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
	cancels := func(k keyed) bool { return !k.deleted && k.ID == h.uuid }
	// Where the part that an attempt got is not known, the mark comes first.
	if g.marks[h.uuid] || slices.ContainsFunc(txn[protocol.KindCancelled], cancels) {
		h.goneBy = "cancelled"
	}
	for _, k := range txn[protocol.KindHistory] {
		e, err := protocol.Unmarshal[metadata.Ending]([]byte(k.value))
		if err != nil || k.deleted || e.UUID != h.uuid || e.Name != h.lock {
			continue
		}
		h.ending = &e
		h.goneBy = e.Cause
		if e.Token != h.token {
			g.found(ruleHistory, "the entry of %s says token %d, it was %d", h.uuid, e.Token, h.token)
		}
	}
	if h.goneBy == metadata.EndingAbandoned {
		g.proof(h)
	}
	delete(g.now, h.lock)
}

func (g *ledger) ticket(k keyed) {
	all := entry(g.tickets, k.Lock)
	if k.deleted {
		delete(all, k.ID)
		return
	}
	if _, had := all[k.ID]; !had && g.marks[k.ID] {
		g.found(ruleCancelled, "%s joined the queue of %q at revision %d after its cancel was committed", k.ID, k.Lock,
			k.revision)
	}
	all[k.ID] = k.created
}

func (g *ledger) guarded(k keyed) {
	lock, isResource := strings.CutPrefix(k.key, resourcePrefix)
	if !isResource || k.deleted || strings.HasPrefix(k.key, countPrefix) {
		return
	}
	token, _ := strconv.ParseInt(k.value, 10, 64)
	if h := g.now[lock]; h == nil || h.token != token {
		g.found(ruleGuard, "token %d wrote to the key of %q at revision %d", token, lock, k.revision)
	}
}

// parseTime reads the time at the beginning of a value; none where there is none.
func parseTime(s string) time.Time {
	s, _, _ = strings.Cut(s, " ")
	t, err := metadata.ParseTime(s)
	if err != nil {
		return time.Time{}
	}
	return t
}

func (h *hold) String() string {
	return fmt.Sprintf("%q of %s (token %d, taken by %s)", h.lock, h.uuid, h.token, h.Op)
}
