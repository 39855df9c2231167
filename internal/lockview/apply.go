package lockview

import (
	"slices"
	"strings"
	"time"

	"github.com/clustermutex/unlocker/internal/protocol"
)

// group is all changes of one lock in one revision.
type group struct {
	lock    string
	changes []change
}

// revision is the events of one revision by what they are about.
type revision struct {
	groups  []group
	byLock  map[string]int             // places in groups
	endings map[string]*protocol.Event // history records by their id
}

// apply applies all events of one revision, which arrived now, and returns what became of the locks.
func (p *picture) apply(events []protocol.Event, now time.Time, clock time.Duration,
	touch func(key protocol.Key)) (steps []step, endings map[string]*protocol.Event) {
	var r revision
	for i := range events {
		e := &events[i]
		key := p.layout.Parse(e.Key)
		touch(key)
		switch key.Kind {
		case protocol.KindField:
			r.add(key.Lock, change{field: key.ID, event: e})
		case protocol.KindForeign:
			p.applyForeign(key, e)
			if key.Lock != "" {
				r.add(key.Lock, change{foreign: true, event: e})
			}
		case protocol.KindTicket:
			if e.Deleted {
				p.queues.remove(key.Lock, key.ID)
			} else {
				p.queues.put(waiter(key.Lock, key.ID, e.KV, clock, p.intern))
			}
		case protocol.KindUnlocker:
			p.applyUnlocker(key.ID, e, now)
		case protocol.KindHistory:
			if r.endings == nil {
				r.endings = map[string]*protocol.Event{}
			}
			if !e.Deleted {
				r.endings[key.ID] = e
			}
		}
	}
	for _, g := range r.groups {
		steps = append(steps, p.lock(g.lock, g.changes))
	}
	return steps, r.endings
}

// add finds the group of a lock; nearly always the last one, as a range is deleted in the order of keys.
func (r *revision) add(lock string, c change) {
	if n := len(r.groups); n > 0 && r.groups[n-1].lock == lock {
		r.groups[n-1].changes = append(r.groups[n-1].changes, c)
		return
	}
	if r.byLock == nil {
		r.byLock = map[string]int{}
	}
	i, ok := r.byLock[lock]
	if !ok {
		i = len(r.groups)
		r.byLock[lock] = i
		r.groups = append(r.groups, group{lock: lock})
	}
	r.groups[i].changes = append(r.groups[i].changes, c)
}

func (p *picture) applyForeign(key protocol.Key, e *protocol.Event) {
	if key.Lock == "" {
		p.misplace(e.KV, e.Deleted)
	}
	_, held := p.locks.get(key.Lock)
	switch {
	case key.Lock == "" && p.unlisted(e.Key):
	case e.Deleted:
		p.stray(e.Key, key.Lock, -1, held)
	case e.CreateRevision == e.ModRevision:
		p.stray(e.Key, key.Lock, 1, held)
	}
}

// unlisted tells whether key lies in an area that lists leave out, so that it must not be counted here either.
func (p *picture) unlisted(key string) bool {
	return slices.ContainsFunc(p.layout.Unlisted(), func(area string) bool { return strings.HasPrefix(key, area) })
}

func (p *picture) applyUnlocker(instance string, e *protocol.Event, now time.Time) {
	_, known := p.unlockers[instance]
	switch {
	case e.Deleted:
		delete(p.unlockers, instance)
	case known || len(p.unlockers) < maxUnlockers:
		p.unlockers[instance] = unlocker(instance, e.KV, now, p.intern)
	}
}
