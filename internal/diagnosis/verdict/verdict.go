package verdict

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/clustermutex/unlocker/internal/diagnosis"
	"github.com/clustermutex/unlocker/internal/diagnosis/deadlock"
	"github.com/clustermutex/unlocker/internal/diagnosis/fate"
	"github.com/clustermutex/unlocker/internal/diagnosis/unclaimed"
	"github.com/clustermutex/unlocker/internal/lockorder"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// Cluster is what is known of the locks of one etcd cluster.
type Cluster struct {
	Name  string    // for people, where there are several
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
	Class   Class
	In      int    // the place of the cluster that it is about
	Cluster string // the same for people, where there are several
	Lock    string // that it is about; empty: none
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

// candidate is what the sentence may be about.
type candidate struct {
	in    *Cluster
	class Class
	lock  *Lock
	cycle *deadlock.Cycle
	free  *unclaimed.Lock
	since time.Time
}

// Of decides about the locks of all clusters. There is one at least.
func Of(clusters ...Cluster) Verdict {
	var first candidate
	var all Counts
	in := 0
	for i := range clusters {
		c := &clusters[i]
		if one := c.first(); i == 0 || one.compare(&first) < 0 {
			first = one
			in = i
		}
		for class, n := range c.counts() {
			all[class] += n
		}
	}
	v := first.say()
	v.In = in
	if v.Class == Calm {
		v.Lead, v.Then = allIsWell(clusters, &first)
	}
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
func OfLock(c Cluster, name string, held *Lock) (v Verdict, ok bool) {
	one := candidate{in: &c, class: Calm}
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
			one = candidate{in: &c, class: Unclaimed, free: &c.Unclaimed[i]}
		}
	}
	in := func(cycle deadlock.Cycle) bool { return slices.Contains(cycle.Locks(), queue) }
	if i := slices.IndexFunc(c.Cycles, in); i >= 0 {
		one = candidate{in: &c, class: Deadlock, cycle: &c.Cycles[i]}
	}
	if one.class == Calm && held == nil {
		return Verdict{}, false
	}
	v = one.say()
	if one.class == Deadlock {
		v.Lock = name
	}
	return v, true
}

// first is what the sentence is about if there is no other cluster.
func (c *Cluster) first() candidate {
	one := candidate{in: c, class: Calm}
	if c.Ranking != nil && c.Ranking.First != nil {
		one.lock = c.Ranking.First
		one.class = one.lock.Class
	}
	switch {
	case c.away():
		return candidate{in: c, class: Stale, since: c.Heard}
	case c.unlockersFail():
		return candidate{in: c, class: Unlockers}
	case len(c.Cycles) > 0:
		return candidate{in: c, class: Deadlock, cycle: &c.Cycles[0], since: c.Cycles[0].Since}
	case len(c.Unclaimed) > 0:
		return candidate{in: c, class: Unclaimed, free: &c.Unclaimed[0], since: c.Unclaimed[0].Since}
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

// compare is negative if a person should hear of it before the other one.
func (o *candidate) compare(p *candidate) int {
	if o.class != p.class {
		return cmp.Compare(o.class, p.class)
	}
	if o.lock != nil && p.lock != nil {
		return o.lock.compare(p.lock)
	}
	if o.class == Calm && (o.lock == nil) != (p.lock == nil) { // somebody waits in one of them
		return cmp.Compare(lockorder.Instant(o.waiting()), lockorder.Instant(p.waiting()))
	}
	return cmp.Compare(lockorder.Instant(o.since), lockorder.Instant(p.since))
}

func (o *candidate) waiting() time.Time {
	if o.lock == nil {
		return time.Time{}
	}
	return o.lock.Longest
}

type sentence = diagnosis.Sentence

// say is the verdict if this is what it is about.
func (o *candidate) say() Verdict {
	v := Verdict{Class: o.class, Cluster: o.in.Name}
	switch o.class {
	case Stale:
		v.Lead, v.Then = o.in.stale()
		v.Next = LookAtView
	case Unlockers:
		v.Lead, v.unlockers = o.in.unlockers()
		v.Next = ReadRunbook
	case Deadlock:
		v.Lock = o.cycle.Locks()[0]
		v.Lead, v.Then = o.in.deadlock(o)
		v.Next = LookAtCycle
	case Unclaimed:
		v.Lock = o.free.Name
		v.Lead = o.in.unclaimed(o)
		v.Next = LookAtLock
	default:
		if o.lock == nil {
			return v
		}
		var then []sentence
		v.Lock, v.Holder = o.lock.Name, o.lock.Holder
		v.Lead, then, v.Next = o.in.held(o.lock)
		v.Then = diagnosis.Join(then, " ")
	}
	return v
}
