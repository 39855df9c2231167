package lockview

import (
	"fmt"

	"github.com/clustermutex/unlocker/pkg/metadata"
)

const (
	// maxSample is how many of the keys that fit no layout are remembered.
	maxSample = 100
	// maxStrays is how many names are remembered of locks that nobody holds and that have foreign keys in their range.
	// With more of them, every new lock is taken for one: deleting it key by key is slower, but never deletes what is
	// not its own.
	maxStrays = 10_000
)

// picture is what etcd holds at one revision, as far as the view keeps it.
type picture struct {
	layout metadata.Layout
	intern *interner

	locks     index
	odd       map[string]*odd // of the locks that are not plain
	queues    queues
	unlockers map[string]Unlocker

	foreign int             // keys that fit no layout
	sample  map[string]bool // some of them
	strays  map[string]int  // foreign keys in the range of a lock, by lock; 0 = there may be some
	astray  bool            // there are more than strays holds

	misplaced map[string]*misplaced // by place
	moves     uint64                // changes of misplaced
}

func newPicture(l metadata.Layout, i *interner) *picture {
	return &picture{
		layout: l, intern: i, odd: map[string]*odd{}, queues: queues{}, unlockers: map[string]Unlocker{},
		sample: map[string]bool{}, strays: map[string]int{}, misplaced: map[string]*misplaced{},
	}
}

// change is an event of a key of one lock.
type change struct {
	field   string
	foreign bool // the key lies in the lock's range and is none of its fields
	event   *metadata.Event
}

// step is what one revision did to one lock; a missing item has no record.
type step struct{ before, after item }

// lock applies all changes of one revision to one lock.
func (p *picture) lock(name string, changes []change) step {
	before, _ := p.locks.get(name)
	after, o := p.changed(name, before, changes)
	if after.rec == nil {
		p.locks.remove(name)
		delete(p.odd, name)
		return step{before: before}
	}
	p.place(after, o)
	return step{before, after}
}

func (p *picture) place(it item, o *odd) {
	p.locks.put(it)
	if o == nil {
		delete(p.odd, it.name())
	} else {
		p.odd[it.name()] = o
	}
}

func (p *picture) changed(name string, before item, changes []change) (item, *odd) {
	o := p.odd[name]
	if before.rec != nil && o == nil {
		if after, ok := extended(before, changes); ok {
			return after, nil
		}
		if released(before, changes) {
			return item{}, nil
		}
		o = unfold(before)
	}
	if o == nil {
		return p.appeared(name, changes)
	}
	for _, c := range changes {
		switch {
		case c.foreign:
		case c.event.Deleted:
			o.remove(c.field)
		default:
			o.set(keep(field(c)))
		}
	}
	if len(o.fields) == 0 {
		return item{}, nil
	}
	return p.decodeOdd(name, o)
}

// appeared makes the lock whose first keys these are.
func (p *picture) appeared(name string, changes []change) (item, *odd) {
	var fields []metadata.Field
	for _, c := range changes {
		if !c.foreign && !c.event.Deleted {
			fields = append(fields, field(c))
		}
	}
	if _, known := p.strays[name]; p.astray && !known && len(fields) > 0 {
		p.strays[name] = 0
	}
	return p.decode(name, fields, 0)
}

func field(c change) metadata.Field {
	return metadata.Field{
		Name: c.field, Value: string(c.event.Value), CreateRevision: c.event.CreateRevision,
		ModRevision: c.event.ModRevision,
	}
}

// decode makes the item of all keys of a lock, but for a surplus, and what else has to be kept of an odd one.
func (p *picture) decode(name string, fields []metadata.Field, surplus int) (item, *odd) {
	if len(fields) == 0 {
		return item{}, nil
	}
	size := 0
	for _, f := range fields {
		size += len(f.Name) + len(f.Value)
	}
	rec := metadata.DecodeRecord(name, fields)
	if _, has := p.strays[name]; !has && plain(&rec, fields, size) {
		return p.compact(&rec, size), nil
	}
	o := &odd{}
	for _, f := range fields {
		o.set(keep(f))
	}
	o.surplus = surplus + len(fields) - len(o.fields)
	return p.decodeOdd(name, o)
}

func (p *picture) decodeOdd(name string, o *odd) (item, *odd) {
	rec, size := o.record(name), o.size()
	if n, has := p.strays[name]; has {
		rec.Problems = append(rec.Problems, straysIn(n))
	}
	if o.surplus == 0 && plain(&rec, o.raw(), size) {
		o = nil
	}
	return p.compact(&rec, size), o
}

func straysIn(n int) metadata.Problem {
	text := "keys in its range may fit no layout"
	if n > 0 {
		text = fmt.Sprintf("%d of the keys in its range fit no layout and are left alone", n)
	}
	return metadata.Problem{Field: "record", Reason: metadata.ReasonUnknownLayout, Text: text}
}

// compact moves a record to as little memory as it can do with.
func (p *picture) compact(r *metadata.Record, size int) item {
	rec := *r
	texts := rec.Name + rec.UUID
	rec.Name, rec.UUID = texts[:len(rec.Name)], texts[len(rec.Name):]
	rec.Owner, rec.Hostname, rec.Purpose = p.intern.text(rec.Owner), p.intern.text(rec.Hostname), p.intern.text(rec.Purpose)
	return item{&rec, size}
}
