// Package headline decides which lock needs a person first, why, and what to do: one decision table, whose sentence
// page, command line and API say alike. docs/adr/0029-a-table-decides-the-sentence.md has the table and its reasons.
package headline

import (
	"slices"
	"strings"
	"time"

	"github.com/clustermutex/unlocker/internal/diagnosis"
	"github.com/clustermutex/unlocker/internal/diagnosis/deadlock"
	"github.com/clustermutex/unlocker/internal/locks"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// Input is the state of the locks of one etcd cluster, from which the headline is chosen.
type Input struct {
	Now          time.Time // as of which the locks were judged
	SilentSince  time.Time // when etcd was heard last, if the view is not current; else zero
	SilenceCause string    // why it is silent, in a few words; may be empty
	Alarm        string    // that etcd has raised, in a sentence without its full stop; empty: none is known

	OmitName        bool                     // the name of the lock is said elsewhere
	Running         []metadata.Presence      // the unlockers that are alive
	IgnoreUnlockers bool                     // problems of the unlockers are no headline
	Combined        diagnosis.CombinedPolicy // what these do to stale locks

	Cycles    []deadlock.Cycle      // the oldest first
	Unclaimed []diagnosis.Unclaimed // those that have been free for longest first
	// Inconsistent are locks that no client leaves like that, such as a semaphore with too many permits out.
	Inconsistent []diagnosis.Inconsistent
	Ranking      *locks.Ranking // nil: none
	Held         int            // locks
	Leased       int            // locks of other libraries
	Waiting      int
}

// InputOf returns the input from a snapshot. The caller adds Unclaimed, if it knows that the snapshot is current.
func InputOf(s *locks.Snapshot, running []metadata.Presence, now time.Time) Input {
	return Input{Now: now, Running: running, Combined: s.Combined, Held: len(s.Rows), Leased: len(s.Leased),
		Waiting: s.Totals.Waiting,
		Cycles:  s.Cycles(), Ranking: s.Ranking(), Inconsistent: s.Inconsistent}
}

// Headline is the sentence on top: what a person must know first.
type Headline struct {
	Class locks.Class
	Lock  string // that it is about; empty: none
	// Holder is the hold that it is about; nil: nobody holds the lock.
	Holder  *metadata.Record
	Summary diagnosis.Sentence // what is the matter
	Details diagnosis.Sentence // what happens next, and why; may be empty
	Steps   []Step             // what can be done, from harmless to dangerous
	More    []More             // what else is wrong
	// Inconsistent are the first of the locks that no client leaves like that.
	Inconsistent []diagnosis.Inconsistent

	IsInconsistent bool // Lock is, which is what Summary says

	unlockerAlert string // the alert about them, in lower case
}

// More is a count of other problems: those of a class.
type More struct {
	Class     locks.Class
	N         int
	SameClass bool // as that of the sentence
}

// String returns "2 more late".
func (m More) String() string {
	words := m.Class.String()
	if m.Class == locks.ClassDeadlock {
		words = "deadlocked"
	}
	if m.SameClass {
		words = "more " + words
	}
	return text.Thousands(m.N) + " " + words
}

// String returns all sentences as of a time, in one line of visible characters.
func (v *Headline) String(now time.Time) string {
	return strings.TrimSpace(v.Summary.String(now)+" "+v.Details.String(now)) + v.MoreText()
}

// MoreText returns a sentence about what else is wrong; empty if nothing is.
func (v *Headline) MoreText() string {
	var more []string
	for _, m := range v.More {
		more = append(more, m.String())
	}
	for _, l := range v.Inconsistent {
		more = append(more, l.String())
	}
	if more == nil {
		return ""
	}
	return " Also: " + strings.Join(more, ", ") + "."
}

// For returns the headline of all locks.
func For(c Input) Headline {
	v := c.mostUrgent()
	var all locks.ClassCounts
	if c.Ranking != nil {
		all = c.Ranking.Counts
	}
	all[locks.ClassDeadlock] = len(c.Cycles)
	all[locks.ClassUnclaimed] = len(c.Unclaimed)
	for _, class := range locks.Classes()[:locks.ClassLeaving-1] {
		m := More{class, all[class], class == v.Class}
		if m.SameClass {
			m.N--
		}
		if m.N > 0 {
			v.More = append(v.More, m)
		}
	}
	others := slices.DeleteFunc(slices.Clone(c.Inconsistent), func(l diagnosis.Inconsistent) bool {
		return v.IsInconsistent && l.Name == v.Lock
	})
	v.Inconsistent = others[:min(len(others), maxNamed)]
	return v
}

// ForLock returns the headline of a single lock; held is nil if it has no holder. ok is false if there is nothing to
// say. The acknowledgement is left to the caller, unless the lock has several holders.
func ForLock(c Input, name string, held *locks.HeldLock) (v Headline, ok bool) {
	queue := name
	if held != nil {
		queue = held.QueueName()
	}
	for i := range c.Cycles {
		if slices.Contains(c.Cycles[i].Locks(), queue) {
			v = c.deadlock(&c.Cycles[i])
			v.Lock = name
			if held != nil {
				v.Steps = c.describe(held, []StepKind{LookAtCycle, AskToFinish, EndProcess, ForceUnlock})
			}
			return v, true
		}
	}
	if held != nil {
		alone := *held
		if held.Shares == 0 {
			alone.Row = new(*held.Row)
			alone.Acknowledged = nil
		}
		v = c.forHeldLock(&alone)
		for _, l := range c.Inconsistent {
			if l.Name == queue && held.Inconsistent == "" {
				v.Details = diagnosis.Join([]sentence{v.Details, sentence{}.Say("It " + l.Why + ".")}, " ")
			}
		}
		return v, true
	}
	for i := range c.Unclaimed {
		if c.Unclaimed[i].Name == name {
			return c.unclaimed(&c.Unclaimed[i]), true
		}
	}
	return Headline{}, false
}

// mostUrgent returns the headline about what is most urgent.
func (c *Input) mostUrgent() Headline {
	switch {
	case c.viewIsStale():
		return c.stale()
	case c.unlockersFail():
		return c.unlockers()
	case len(c.Cycles) > 0:
		return c.deadlock(&c.Cycles[0])
	case len(c.Unclaimed) > 0:
		return c.unclaimed(&c.Unclaimed[0])
	case c.Ranking == nil || c.Ranking.First == nil:
		return c.allIsWell(nil)
	case c.Ranking.First.Class == locks.ClassOnTime:
		return c.allIsWell(c.Ranking.First)
	}
	return c.forHeldLock(c.Ranking.First)
}

func (c *Input) viewIsStale() bool { return !c.SilentSince.IsZero() }

// unlockersFail reports whether locks are not removed in time. While etcd is silent, that is unknown.
func (c *Input) unlockersFail() bool {
	return !c.viewIsStale() && !c.IgnoreUnlockers &&
		(c.Alarm != "" || len(c.Running) == 0 || len(c.heldBack()) > 0 || len(diagnosis.Disagreements(c.Running)) > 0)
}

type sentence = diagnosis.Sentence

func (c *Input) forHeldLock(l *locks.HeldLock) Headline {
	summary, then := c.held(l)
	return Headline{Class: l.Class, Lock: l.Lock, Holder: l.Record, Summary: summary,
		Details: diagnosis.Join(then, " "),
		Steps:   c.stepsFor(l), IsInconsistent: l.Class == locks.ClassMalformed && l.Inconsistent != ""}
}
