package verdict

import (
	"slices"
	"strings"
	"time"

	"github.com/clustermutex/unlocker/internal/diagnosis"
	"github.com/clustermutex/unlocker/internal/diagnosis/deadlock"
	"github.com/clustermutex/unlocker/internal/diagnosis/fate"
	"github.com/clustermutex/unlocker/internal/diagnosis/unclaimed"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// Cluster is what is known of the locks of one etcd cluster.
type Cluster struct {
	Now   time.Time // as of which the locks were judged
	Heard time.Time // when etcd was heard last, if the view is not current; else zero
	Never bool      // nothing was ever heard of it
	Why   string    // that it is silent, in a few words; may be empty
	Alarm string    // that etcd has raised, in a sentence without its full stop; empty: none is known

	Running   []metadata.Presence // the unlockers that are alive
	Unwatched bool                // nobody cares for the unlockers
	Fate      fate.Fate           // what these do to stale locks

	Cycles    []deadlock.Cycle // the oldest first
	Unclaimed []unclaimed.Lock // those that have been free for longest first
	Ranking   *Ranking         // nil: none
	Held      int              // locks
	Waiting   int
}

// Verdict is what a person must know first.
type Verdict struct {
	Class Class
	Lock  string // that it is about; empty: none
	// Holder is whom it is about; nil: nobody holds the lock.
	Holder *metadata.Record
	Lead   diagnosis.Sentence // what is the matter
	Then   diagnosis.Sentence // what else decides, and what happens next; may be empty
	Next   Step
	More   []More // what else is wrong

	unlockers string // the alert about them, in lower case
}

// More is how many more are in another class, or in the same one.
type More struct {
	Class Class
	N     int
	Same  bool // as that of the sentence
}

// String is "2 more late".
func (m More) String() string {
	words := m.Class.String()
	switch m.Class {
	case Stale:
		words = "away"
	case Unlockers:
		words = "without working unlockers"
	case Deadlock:
		words = "deadlocked"
	}
	if m.Same {
		words = "more " + words
	}
	return text.Thousands(m.N) + " " + words
}

// String is all of it as of the time, in one line of visible characters.
func (v *Verdict) String(now time.Time) string {
	return strings.TrimSpace(v.Lead.String(now)+" "+v.Then.String(now)) + v.Also()
}

// Also says what else is wrong, after the sentences; empty if nothing is.
func (v *Verdict) Also() string {
	if len(v.More) == 0 {
		return ""
	}
	var more []string
	for _, m := range v.More {
		more = append(more, m.String())
	}
	return " Also: " + strings.Join(more, ", ") + "."
}

// subject is what the sentence is about.
type subject struct {
	class Class
	lock  *Lock
	cycle *deadlock.Cycle
	free  *unclaimed.Lock
}

// Of decides about all locks of the cluster.
func Of(c *Cluster) Verdict {
	about := c.first()
	v := c.say(&about)
	if v.Class == Calm {
		v.Lead, v.Then = c.allIsWell(about.lock)
	}
	all := c.counts()
	for _, class := range Classes()[:Leaving-1] {
		m := More{class, all[class], class == v.Class}
		if m.Same {
			m.N--
		}
		if m.N > 0 {
			v.More = append(v.More, m)
		}
	}
	return v
}

// OfLock decides about a single lock of a cluster; held is nil if it has no holder. ok is false if there is nothing to
// say. The acknowledgement is left to the caller, unless the lock has several holders.
func OfLock(c *Cluster, name string, held *Lock) (v Verdict, ok bool) {
	one := subject{class: Calm}
	queue := name
	if held != nil {
		if one.lock = new(*held); held.Shares == 0 {
			one.lock.Looked = nil
		}
		one.class = held.Class
		queue = held.Holder.Queue()
	}
	for i := range c.Unclaimed {
		if c.Unclaimed[i].Name == name && held == nil {
			one = subject{class: Unclaimed, free: &c.Unclaimed[i]}
		}
	}
	in := func(cycle deadlock.Cycle) bool { return slices.Contains(cycle.Locks(), queue) }
	if i := slices.IndexFunc(c.Cycles, in); i >= 0 {
		one = subject{class: Deadlock, cycle: &c.Cycles[i]}
	}
	if one.class == Calm && held == nil {
		return Verdict{}, false
	}
	v = c.say(&one)
	if one.class == Deadlock {
		v.Lock = name
	}
	return v, true
}

// first is what a person should hear of first.
func (c *Cluster) first() subject {
	one := subject{class: Calm}
	if c.Ranking != nil && c.Ranking.First != nil {
		one.lock = c.Ranking.First
		one.class = one.lock.Class
	}
	switch {
	case c.away():
		return subject{class: Stale}
	case c.unlockersFail():
		return subject{class: Unlockers}
	case len(c.Cycles) > 0:
		return subject{class: Deadlock, cycle: &c.Cycles[0]}
	case len(c.Unclaimed) > 0:
		return subject{class: Unclaimed, free: &c.Unclaimed[0]}
	}
	return one
}

// away reports whether the view is not current.
func (c *Cluster) away() bool { return c.Never || !c.Heard.IsZero() }

// counts is how many are in each class.
func (c *Cluster) counts() (all Counts) {
	if c.Ranking != nil {
		all = c.Ranking.Counts
	}
	if c.away() {
		all[Stale] = 1
	}
	if c.unlockersFail() {
		all[Unlockers] = 1
	}
	all[Deadlock] = len(c.Cycles)
	all[Unclaimed] = len(c.Unclaimed)
	return all
}

// unlockersFail reports whether locks are not removed in time. While etcd is silent, that is unknown.
func (c *Cluster) unlockersFail() bool {
	return !c.away() && !c.Unwatched &&
		(c.Alarm != "" || len(c.Running) == 0 || len(c.heldBack()) > 0 || len(fate.Disagreements(c.Running)) > 0)
}

type sentence = diagnosis.Sentence

// say is the verdict about a subject.
func (c *Cluster) say(o *subject) Verdict {
	v := Verdict{Class: o.class}
	switch o.class {
	case Stale:
		v.Lead, v.Then = c.stale()
		v.Next = LookAtView
	case Unlockers:
		v.Lead, v.unlockers = c.unlockers()
		v.Next = ReadRunbook
	case Deadlock:
		v.Lock = o.cycle.Locks()[0]
		v.Lead, v.Then = c.deadlock(o.cycle)
		v.Next = LookAtCycle
	case Unclaimed:
		v.Lock = o.free.Name
		v.Lead = c.unclaimed(o.free)
		v.Next = LookAtLock
	default:
		if o.lock == nil {
			return v
		}
		var then []sentence
		v.Lock, v.Holder = o.lock.Name, o.lock.Holder
		v.Lead, then, v.Next = c.held(o.lock)
		v.Then = diagnosis.Join(then, " ")
	}
	return v
}
