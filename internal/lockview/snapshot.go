package lockview

import (
	"fmt"

	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

const (
	// maxForeignSample is how many foreign keys are remembered by name.
	maxForeignSample = 100
	// maxForeignLocks is how many lock names are remembered that are not held but have foreign keys in their range.
	// With more of them, every new lock is assumed to have some: deleting it range by range is slower, but never
	// deletes what is not its own.
	maxForeignLocks = 10_000
)

// snapshot is what etcd holds at one revision, as far as the view keeps it.
type snapshot struct {
	layout protocol.Layout
	intern *interner

	locks      index
	irregulars map[string]*irregular // by lock; the others are canonical
	queues     queues
	unlockers  map[string]Unlocker
	stated     statements

	foreignTotal    int             // number of keys that the layout does not know
	foreignSample   map[string]bool // some of them
	foreignIn       map[string]int  // number of foreign keys in a lock's range, by lock; 0 = unknown
	foreignOverflow bool            // there are more such locks than foreignIn holds

	misplaced map[string]*misplaced // by key prefix
	moves     uint64                // number of changes of misplaced
}

func newSnapshot(l protocol.Layout, i *interner) *snapshot {
	return &snapshot{
		layout: l, intern: i, irregulars: map[string]*irregular{}, queues: queues{}, unlockers: map[string]Unlocker{},
		stated:        newStatements(),
		foreignSample: map[string]bool{}, foreignIn: map[string]int{}, misplaced: map[string]*misplaced{},
	}
}

// change is an event on one key of a lock.
type change struct {
	field   string
	foreign bool // the key lies in the lock's range and is none of its fields
	event   *protocol.Event
}

// step is what one revision did to one lock. An item without a record stands for "not there".
type step struct{ before, after item }

// applyLock applies all changes of one revision to one lock.
func (s *snapshot) applyLock(name string, changes []change) step {
	before, _ := s.locks.get(name)
	after, o := s.decodeChanges(name, before, changes)
	if after.rec == nil {
		s.locks.remove(name)
		delete(s.irregulars, name)
		return step{before: before}
	}
	s.heed(after.rec)
	s.put(after, o)
	return step{before, after}
}

func (s *snapshot) put(it item, o *irregular) {
	s.locks.put(it)
	if o == nil {
		delete(s.irregulars, it.name())
	} else {
		s.irregulars[it.name()] = o
	}
}

func (s *snapshot) decodeChanges(name string, before item, changes []change) (item, *irregular) {
	o := s.irregulars[name]
	if before.rec != nil && o == nil {
		if after, ok := extended(before, changes); ok {
			return after, nil
		}
		if released(before, changes) {
			return item{}, nil
		}
		o = expand(before)
	}
	if o == nil {
		return s.decodeNew(name, changes)
	}
	for _, c := range changes {
		switch {
		case c.foreign:
		case c.event.Deleted:
			o.remove(c.field)
		default:
			o.set(truncate(field(c)))
		}
	}
	if len(o.fields) == 0 {
		return item{}, nil
	}
	return s.decodeIrregular(name, o)
}

// decodeNew decodes a lock from its first keys.
func (s *snapshot) decodeNew(name string, changes []change) (item, *irregular) {
	var fields []metadata.Field
	for _, c := range changes {
		if !c.foreign && !c.event.Deleted {
			fields = append(fields, field(c))
		}
	}
	if _, known := s.foreignIn[name]; s.foreignOverflow && !known && len(fields) > 0 {
		s.foreignIn[name] = 0
	}
	return s.decode(name, fields, 0)
}

func field(c change) metadata.Field {
	return metadata.Field{
		Name: c.field, Value: string(c.event.Value), CreateRevision: c.event.CreateRevision,
		ModRevision: c.event.ModRevision,
	}
}

// decode decodes all keys of a lock except a surplus. For an irregular lock it also returns the keys to keep.
func (s *snapshot) decode(name string, fields []metadata.Field, surplus int) (item, *irregular) {
	if len(fields) == 0 {
		return item{}, nil
	}
	size := 0
	for _, f := range fields {
		size += len(f.Name) + len(f.Value)
	}
	rec := metadata.DecodeRecord(name, fields)
	if _, has := s.foreignIn[name]; !has && isCanonical(&rec, fields, size) {
		return s.compact(&rec, size), nil
	}
	o := &irregular{}
	for _, f := range fields {
		o.set(truncate(f))
	}
	o.surplus = surplus + len(fields) - len(o.fields)
	return s.decodeIrregular(name, o)
}

func (s *snapshot) decodeIrregular(name string, o *irregular) (item, *irregular) {
	rec, size := o.record(name), o.size()
	if n, has := s.foreignIn[name]; has {
		rec.Problems = append(rec.Problems, foreignProblem(n))
	}
	if o.surplus == 0 && isCanonical(&rec, o.raw(), size) {
		o = nil
	}
	return s.compact(&rec, size), o
}

func foreignProblem(n int) metadata.Problem {
	text := "its range may hold foreign keys"
	if n > 0 {
		text = fmt.Sprintf("%d foreign keys in its range, which auto-unlock and force unlock leave alone", n)
	}
	return metadata.Problem{Field: "record", Reason: metadata.ReasonUnknownLayout, Text: text}
}

// compact copies a record into as little memory as possible.
func (s *snapshot) compact(r *metadata.Record, size int) item {
	rec := *r
	texts := rec.Name + rec.UUID
	rec.Name, rec.UUID = texts[:len(rec.Name)], texts[len(rec.Name):]
	rec.Owner = s.intern.text(rec.Owner)
	rec.Hostname = s.intern.text(rec.Hostname)
	rec.Purpose = s.intern.text(rec.Purpose)
	if rec.Process != nil {
		rec.Process = s.intern.process(*rec.Process)
	}
	return item{&rec, size}
}
