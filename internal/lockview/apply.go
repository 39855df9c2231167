package lockview

import (
	"slices"
	"strings"
	"time"

	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// grouped holds the events of one revision, by lock.
type grouped struct {
	locks   []string // in the order of their first change
	changes map[string][]keyChange
	endings map[string]*protocol.Event // history records by id
	left    map[string]metadata.Waiter // waiters that left their queues, by uuid

	withStatements []string // locks whose statements have changed
	maybeFree      []string // locks and shares that may have become free or taken
}

func (r *grouped) add(lock string, c keyChange) {
	if _, known := r.changes[lock]; !known {
		r.locks = append(r.locks, lock)
	}
	r.changes[lock] = append(r.changes[lock], c)
}

// noteLeft notes a waiter whose ticket changed: it may have got the lock.
func (r *grouped) noteLeft(q *queue, ticket string) {
	if q == nil {
		return
	}
	if w, waited := q.waiters[ticket]; waited {
		r.left[w.UUID] = w
	}
}

// apply applies all events of one revision, which arrived at now. It returns what changed for each lock, and what else
// the revision shows about the holds that began and ended.
func (s *snapshot) apply(v *View, events []protocol.Event, now time.Duration) (changes []lockChange, r grouped) {
	if len(events) > 0 {
		r.changes = map[string][]keyChange{}
		r.endings = map[string]*protocol.Event{}
		r.left = map[string]metadata.Waiter{}
	}
	for i := range events {
		e := &events[i]
		key := s.layout.Parse(e.Key)
		if !v.keepsKind(key.Kind) {
			continue
		}
		v.touch(key)
		switch key.Kind {
		case protocol.KindField:
			r.add(key.Lock, keyChange{field: key.ID, event: e})
		case protocol.KindForeign:
			s.applyForeign(key, e, now)
			if key.Lock != "" {
				r.add(key.Lock, keyChange{foreign: true, event: e})
			}
		case protocol.KindDeath, protocol.KindSuspicion:
			var st *metadata.Statement
			if !e.Deleted {
				st = decodeStatement(key, e.KV, now)
			}
			r.withStatements = append(r.withStatements, s.applyStatement(key, st)...)
		default:
			s.applyOther(key, e, &r, now)
		}
	}
	for _, lock := range r.locks {
		if v.keepsLock(lock, r.changes[lock]) {
			changes = append(changes, s.applyLock(lock, r.changes[lock]))
			r.maybeFree = append(r.maybeFree, lock)
		}
	}
	s.updateFree(r.maybeFree, now)
	for _, lock := range r.withStatements {
		if c, changed := s.updateStatements(lock); changed {
			// a list that is being read may have the record without the statement
			v.touch(protocol.Key{Kind: protocol.KindField, Lock: lock})
			changes = append(changes, c)
		}
	}
	return changes, r
}

// applyOther applies an event on a key outside the records.
func (s *snapshot) applyOther(key protocol.Key, e *protocol.Event, r *grouped, now time.Duration) {
	switch key.Kind {
	case protocol.KindTicket:
		r.noteLeft(s.queues[key.Lock], key.ID)
		if e.Deleted {
			s.queues.remove(key.Lock, key.ID)
		} else {
			s.queues.put(protocol.DecodeTicket(key, e.KV), now)
		}
		r.maybeFree = append(r.maybeFree, key.Lock)
	case protocol.KindDelay:
		if e.Deleted {
			delete(s.delays, key.Lock)
		} else {
			s.delays[key.Lock] = protocol.DecodeDelay(key.Lock, e.KV)
		}
		r.maybeFree = append(r.maybeFree, key.Lock)
	case protocol.KindUnlocker:
		if e.Deleted {
			delete(s.unlockers, key.ID)
		} else {
			s.putUnlocker(key.ID, e.KV, time.Now())
		}
	case protocol.KindHistory:
		if !e.Deleted {
			r.endings[key.ID] = e
		}
	}
}

func (s *snapshot) applyForeign(key protocol.Key, e *protocol.Event, now time.Duration) {
	if key.Lock == "" {
		s.misplaced.apply(e.KV, e.Deleted, now)
	}
	held := s.locks.get(key.Lock) != nil
	s.foreign.noteOther(e.KV)
	switch {
	case key.Lock == "" && s.isUnlisted(e.Key):
	case e.Deleted:
		s.foreign.add(e.Key, key.Lock, -1, held)
	case e.CreateRevision == e.ModRevision:
		s.foreign.add(e.Key, key.Lock, 1, held)
	}
}

// isUnlisted reports whether key lies in an area that lists leave out. Such keys must not be counted here either.
func (s *snapshot) isUnlisted(key string) bool {
	return slices.ContainsFunc(s.layout.UnlistedAreas(), func(area string) bool { return strings.HasPrefix(key, area) })
}

func (s *snapshot) applyLock(name string, changes []keyChange) lockChange {
	before := s.locks.get(name)
	var known keys
	if before != nil {
		known = before.keys
	}
	now := known.after(changes)
	if len(now.fields) == 0 {
		s.locks.remove(name)
		return lockChange{before: before}
	}
	if before == nil {
		s.assumeForeign(name)
	}
	after := s.decode(name, now)
	s.attachStatements(after)
	s.locks.put(after)
	return lockChange{before, after}
}

// stamp sets the times at which the record was observed, and counts its problems, before any reader sees the record.
// live means that the watch reported the change, not a list. Changes of one revision share now. The caller holds mu.
func (v *View) stamp(c *lockChange, now time.Duration, live bool) {
	v.stats.count(c.before, c.after)
	if c.before != nil || c.after != nil {
		v.locks, v.shown = nil, nil
	}
	if c.after == nil {
		return
	}
	seen := &c.after.Seen
	*seen = metadata.Seen{First: now, Changed: now}
	if live {
		seen.Arrived = max(1, now)
		seen.Followed = max(0, v.state.SyncedChangedAt.Sub(v.began))
	}
	if c.before == nil || c.replaced() {
		return
	}
	before := c.before.Seen
	seen.First = before.First
	if !c.deadlinesChanged() {
		seen.Changed = before.Changed
	}
	if c.before.DeadlinesWrittenAt().Equal(c.after.DeadlinesWrittenAt()) {
		seen.Arrived, seen.Followed = before.Arrived, before.Followed
	}
}

// touch notes, for readers and for a running comparison, that a key changed. The caller holds mu.
func (v *View) touch(key protocol.Key) {
	switch key.Kind {
	case protocol.KindField:
		key.ID = ""
	case protocol.KindTicket:
		key.ID = ""
		v.queues = nil
	case protocol.KindDelay:
		v.delays = nil
	case protocol.KindForeign:
		v.shown = nil // it may be of a misplaced record
		v.touch(protocol.Key{Kind: protocol.KindField, Lock: key.Lock})
		key = protocol.Key{Kind: protocol.KindForeign}
	}
	if v.touched != nil {
		v.touched[key] = true
	}
}

// keepsKind reports whether the view keeps keys of this kind.
func (v *View) keepsKind(kind protocol.Kind) bool {
	return v.opt.Keep == nil || kind == protocol.KindField || kind == protocol.KindDeath ||
		kind == protocol.KindSuspicion
}

// keepsLock reports whether the changes are of a lock that the view keeps. The caller holds mu.
func (v *View) keepsLock(lock string, changes []keyChange) bool {
	if v.opt.Keep == nil {
		return true
	}
	if v.snap.locks.get(lock) != nil {
		return true
	}
	var fields []metadata.Field
	taken := false
	for _, c := range changes {
		if !c.event.Deleted {
			fields = append(fields, c.written())
			taken = taken || c.field == lockrecord.FieldUUID
		}
	}
	return taken && v.opt.Keep(fields)
}
