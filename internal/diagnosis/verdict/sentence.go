package verdict

import (
	"time"

	"github.com/clustermutex/unlocker/internal/diagnosis"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// sentence is what is said, as it grows.
type sentence diagnosis.Sentence

func (s *sentence) say(words string)  { *s = append(*s, diagnosis.Part{Text: words}) }
func (s *sentence) value(v string)    { *s = append(*s, diagnosis.Part{Value: v}) }
func (s *sentence) lock(name string)  { *s = append(*s, diagnosis.Part{Lock: name}) }
func (s *sentence) since(t time.Time) { *s = append(*s, diagnosis.Part{Since: t}) }
func (s *sentence) until(t time.Time) { *s = append(*s, diagnosis.Part{Until: t}) }

// ended says how a witness says that a holder ended.
func (s *sentence) ended(w *metadata.Statement) { *s = append(*s, diagnosis.Ended(w)...) }

func (s sentence) done() diagnosis.Sentence { return diagnosis.Sentence(s) }

// join puts sentences one after the other, but those that say nothing.
func join(all []sentence) (joined sentence) {
	for _, one := range all {
		if len(one) == 0 {
			continue
		}
		if joined != nil {
			joined.say(" ")
		}
		joined = append(joined, one...)
	}
	return joined
}

// say is the verdict if this is what it is about.
func (o *candidate) say() Verdict {
	v := Verdict{Class: o.class, Cluster: o.in.Name}
	var lead sentence
	var then []sentence
	switch o.class {
	case Stale:
		lead, then = o.in.stale()
		v.Next = LookAtView
	case Unlockers:
		lead, v.unlockers = o.in.unlockers()
		v.Next = ReadRunbook
	case Deadlock:
		v.Lock = o.cycle.Locks()[0]
		lead, then = o.in.deadlock(o)
		v.Next = LookAtCycle
	case Unclaimed:
		v.Lock = o.free.Name
		lead = o.in.unclaimed(o)
		v.Next = LookAtLock
	default:
		if o.lock == nil {
			return v
		}
		v.Lock, v.Holder = o.lock.Name, o.lock.Holder
		lead, then, v.Next = o.in.held(o.lock)
	}
	v.Lead, v.Then = lead.done(), join(then).done()
	return v
}

// in adds the cluster of a lock, where there are several.
func (c *Cluster) in(s *sentence) {
	if c.Name != "" {
		s.say(" in ")
		s.value(c.Name)
	}
}

// who names a process: its owner and its host.
func (s *sentence) who(h *metadata.Holder) {
	if h.Owner != "" {
		s.value(h.Owner)
	}
	if h.Hostname != "" {
		s.say(pick(h.Owner != "", " on ", ""))
		s.value(h.Hostname)
	}
}

func pick[T any](first bool, a, b T) T {
	if first {
		return a
	}
	return b
}
