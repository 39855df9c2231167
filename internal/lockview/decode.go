package lockview

import (
	"fmt"

	"github.com/clustermutex/unlocker/pkg/metadata"
)

func (s *snapshot) decodeChanges(name string, before item, changes []change) (item, *irregular) {
	o := s.irregulars[name]
	if before.rec != nil && o == nil {
		if after, ok := s.extended(before, changes); ok {
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
	if _, known := s.foreign.in[name]; s.foreign.overflow && !known && len(fields) > 0 {
		s.foreign.in[name] = 0
	}
	return s.decode(name, fields, 0)
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
	if _, has := s.foreign.in[name]; !has {
		if own, ok := isCanonical(&rec, fields, size); ok {
			return newItem(&rec, size, own, s.intern), nil
		}
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
	if n, has := s.foreign.in[name]; has {
		rec.Problems = append(rec.Problems, foreignProblem(n))
	}
	if o.surplus == 0 {
		if own, ok := isCanonical(&rec, o.raw(), size); ok {
			return newItem(&rec, size, own, s.intern), nil
		}
	}
	return newItem(&rec, size, 0, s.intern), o
}

func foreignProblem(n int) metadata.Problem {
	text := "its range may hold foreign keys"
	if n > 0 {
		text = fmt.Sprintf("%d foreign keys in its range, which auto-unlock and force unlock leave alone", n)
	}
	return metadata.Problem{Field: "record", Reason: metadata.ReasonUnknownLayout, Text: text}
}

func (s *snapshot) put(it item, o *irregular) {
	s.locks.put(it)
	if o == nil {
		delete(s.irregulars, it.name())
	} else {
		s.irregulars[it.name()] = o
	}
}
