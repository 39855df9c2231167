package lockview

import (
	"maps"
	"strings"

	"github.com/clustermutex/unlocker/pkg/metadata"
)

// touched is what the watch told of while a list was read, which therefore says nothing about it.
type touched struct {
	locks, queues, unlockers map[string]bool
	foreign                  bool
}

func newTouched() *touched {
	return &touched{locks: map[string]bool{}, queues: map[string]bool{}, unlockers: map[string]bool{}}
}

// touch notes a change. The caller holds mu.
func (v *View) touch(key metadata.Key) {
	if key.Kind == metadata.KindTicket {
		v.queues = nil
	}
	t := v.touched
	if t == nil {
		return
	}
	switch key.Kind {
	case metadata.KindField:
		t.locks[key.Lock] = true
	case metadata.KindTicket:
		t.queues[key.Lock] = true
	case metadata.KindUnlocker:
		t.unlockers[key.ID] = true
	case metadata.KindForeign:
		t.foreign = true
		t.locks[key.Lock] = true
	}
}

// adopt makes the picture like the list that b read, but for what was touched meanwhile (nil: nothing was). It returns
// the holds that are gone and how many locks differed. The caller holds mu.
func (v *View) adopt(b *builder, t *touched) (gone []*metadata.Record, differed int) {
	if t == nil {
		t = newTouched()
	}
	steps, differed := v.adoptLocks(b, t)
	now := v.Clock()
	for _, s := range steps {
		v.stamp(&s, now, false)
		if r := s.ended(); r != nil {
			gone = append(gone, r)
		}
	}
	v.adoptQueues(b.pic.queues, t)
	v.adoptUnlockers(b.pic.unlockers, t)
	if !t.foreign {
		v.pic.foreign, v.pic.sample, v.pic.strays, v.pic.astray = b.pic.foreign, b.pic.sample, b.pic.strays, b.pic.astray
		v.pic.adoptMisplaced(b.pic.misplaced)
	}
	return gone, differed
}

func (v *View) adoptLocks(b *builder, t *touched) (steps []step, differed int) {
	before := v.pic.locks.items()
	after := b.items
	if len(before) == 0 && len(t.locks) == 0 {
		v.pic.locks.load(after)
		v.pic.odd = b.pic.odd
		for _, it := range after {
			steps = append(steps, step{after: it})
		}
		return steps, len(steps)
	}
	for len(before) > 0 || len(after) > 0 {
		var s step
		switch order(before, after) {
		case -1:
			s.before, before = before[0], before[1:]
		case 1:
			s.after, after = after[0], after[1:]
		default:
			s.before, before, s.after, after = before[0], before[1:], after[0], after[1:]
		}
		if s.before.rec == s.after.rec || t.locks[s.name()] {
			continue
		}
		if !v.vague(&s) {
			differed++
		}
		if s.after.rec == nil {
			v.pic.locks.remove(s.name())
			delete(v.pic.odd, s.name())
		} else {
			v.pic.place(s.after, b.pic.odd[s.name()])
		}
		steps = append(steps, s)
	}
	return steps, differed
}

// vague tells whether it was known that the picture is not exact about the lock, which a list now makes it, though the
// watch told everything: the lock has more keys than are kept, or was taken for one with foreign keys.
func (v *View) vague(s *step) bool {
	if s.before.rec == nil || s.after.rec == nil || s.replaced() || s.moved() {
		return false
	}
	o := v.pic.odd[s.name()]
	strays, has := v.pic.strays[s.name()]
	return o != nil && o.surplus > 0 || has && strays == 0
}

// order compares the first names of two sorted lists, of which an empty one is last.
func order(a, b []item) int {
	switch {
	case len(b) == 0:
		return -1
	case len(a) == 0:
		return 1
	}
	return strings.Compare(a[0].name(), b[0].name())
}

func (s *step) name() string {
	if s.before.rec != nil {
		return s.before.name()
	}
	return s.after.name()
}

func (v *View) adoptQueues(listed queues, t *touched) {
	v.queues = nil
	listed.since(v.pic.queues)
	for lock := range t.queues {
		delete(listed, lock)
		if q := v.pic.queues[lock]; q != nil {
			listed[lock] = q
		}
	}
	v.pic.queues = listed
}

func (v *View) adoptUnlockers(listed map[string]Unlocker, t *touched) {
	for instance, known := range v.pic.unlockers {
		now, ok := listed[instance]
		if t.unlockers[instance] || ok && now.revision == known.revision {
			if !v.state.synced {
				known.heard = now.heard // it could not be heard meanwhile
			}
			listed[instance] = known // with its time of arrival
		}
	}
	maps.DeleteFunc(listed, func(instance string, _ Unlocker) bool {
		_, known := v.pic.unlockers[instance]
		return t.unlockers[instance] && !known
	})
	v.pic.unlockers = listed
}
