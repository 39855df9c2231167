// Package diagnosis finds what is probably wrong: with the holder of a lock, with a free lock that no waiter takes,
// with the records of a lock, and between unlockers whose policies differ. It is never more certain than what is
// recorded.
package diagnosis

import (
	"strings"
	"time"

	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

// Condition is the probable condition of a holder, as in JSON.
type Condition string

// The conditions. Only proof makes a holder dead.
const (
	Dead         Condition = "dead"          // a witness has proof
	ProbablyDead Condition = "probably_dead" // a witness suspects it, or a holder that reported steadily fell silent
	Waiting      Condition = "waiting"       // its process waits for another lock
	// it takes longer than it used to, or than it promised; perhaps it is stuck
	Slow    Condition = "slow"
	Working Condition = "working" // nothing about it is unusual
	Unknown Condition = "unknown" // too little is recorded
)

// Input is what a diagnosis is made from.
type Input struct {
	Record         *metadata.Record
	Judged         staleness.Judgement
	Now            time.Time
	ReportInterval time.Duration // how often the holder reported so far, on average; 0 = not known
	MedianHold     time.Duration // median of past holds; 0 = too few are known
	P95Hold        time.Duration // 95th percentile of past holds; 0 = too few are known
	// Forced means that an unlocker or an operator ended all past holds: these took longer than most.
	Forced bool
	Waits  []Wait // empty = not known to wait for anything
}

// Wait is what a process waits for: the holder's process, or the next one in a chain of waits.
type Wait struct {
	Lock   string    // empty = the one that the diagnosis is about
	Since  time.Time // zero = not known
	Holder string    // owner and host of who holds that lock; empty = nobody, or not known
}

// Part is a piece of a sentence: our own text, the time since or until an instant, the name of a lock, or another text
// from outside.
type Part struct {
	Text         string
	Since, Until time.Time
	Lock         string
	Value        string
}

// Sentence is text in parts: pages update its times and link its locks.
type Sentence []Part

func (s Sentence) Say(words string) Sentence  { return append(s, Part{Text: words}) }
func (s Sentence) Value(v string) Sentence    { return append(s, Part{Value: v}) }
func (s Sentence) Lock(name string) Sentence  { return append(s, Part{Lock: name}) }
func (s Sentence) Since(t time.Time) Sentence { return append(s, Part{Since: t}) }
func (s Sentence) Until(t time.Time) Sentence { return append(s, Part{Until: t}) }
func (s Sentence) And(o Sentence) Sentence    { return append(s, o...) }

// Join concatenates the sentences that are not empty; nil if all are.
func Join(all []Sentence, between string) (joined Sentence) {
	for _, one := range all {
		switch {
		case len(one) == 0:
			continue
		case joined != nil:
			joined = joined.Say(between)
		}
		joined = joined.And(one)
	}
	return joined
}

// String returns the sentence as of now, in one line of visible characters.
func (s Sentence) String(now time.Time) string {
	var b strings.Builder
	for _, p := range s {
		switch {
		case !p.Since.IsZero():
			b.WriteString(text.Duration(now.Sub(p.Since)))
		case !p.Until.IsZero() && !now.Before(p.Until):
			b.WriteString("due")
		case !p.Until.IsZero():
			b.WriteString(text.Relative(p.Until, now))
		case p.Text != "":
			b.WriteString(p.Text)
		default:
			b.WriteString(text.Visible(text.Clip(p.Lock+p.Value, maxShown)))
		}
	}
	return b.String()
}

// maxShown is how many bytes of a text from outside a sentence has.
const maxShown = 512

// Diagnosis is the probable condition of a holder, and why.
type Diagnosis struct {
	Condition Condition
	Label     string   // the word for people
	Why       Sentence // a sentence that goes on after the label and a colon, without its full stop
	Beyond    Sentence // the part of Why that the headline of a late lock does not say
}

// upToTimes is how many times longer than usual a hold may take before the sentence names the longest ones, too.
const upToTimes = 2

// silentTimes is how many times its usual distance between two reports a holder may be silent before that is unusual,
// and deadTimes before it is probably dead, if it also missed its own alert.
const (
	silentTimes = 3
	deadTimes   = 5
)

// Diagnose returns the probable condition of a holder.
func Diagnose(f Input) Diagnosis {
	// unreadable, about another hold, or by another clock
	if r := f.Record; r.Alive != nil && (r.Alive.At.IsZero() || r.Alive.At.Before(r.LockedAt)) {
		silent := *r
		silent.Alive = nil
		f.Record = &silent
	}
	r := f.Record
	switch {
	case r.Token == 0 || r.Misplaced || reserved(r):
		return Diagnosis{Condition: Unknown}
	case r.ProvenDead():
		return Diagnosis{Dead, "Dead", EndedText(r.Death), nil}
	case IsSuspected(r):
		return Diagnosis{ProbablyDead, "Probably dead",
			EndedText(r.Suspicion).Say("; this is a suspicion, not proof"), nil}
	case f.isLate() && f.ReportInterval > 0 && f.silence() > deadTimes*f.ReportInterval:
		return Diagnosis{ProbablyDead, "Probably dead", Sentence{}.Say("it reported about every " +
			text.Duration(f.ReportInterval) + ", and has been silent for ").Since(r.Alive.At), nil}
	case len(f.Waits) > 0:
		return Diagnosis{Waiting, "Waiting", f.waitText(), f.waitText()}
	}
	return f.judgePace()
}

// judgePace judges a holder by how long it takes and how often it reports.
func (f *Input) judgePace() Diagnosis {
	var late Sentence
	took, long := f.durationText()
	if f.isLate() && !long {
		late = late.Say("past its alert for ").Since(f.Judged.DueAlert)
	}
	slow := f.isLate() || long
	reports, missing := f.reportsText()
	why := Join([]Sentence{late, took, reports}, "; ")
	switch {
	case why == nil:
		return Diagnosis{Condition: Unknown}
	case slow && took == nil && reports == nil:
		return Diagnosis{Slow, "Slow or stuck",
			why.Say("; it never reported, and too few past holds are known to compare"), nil}
	case missing, slow && !f.reportsAsExpected():
		return Diagnosis{Slow, "Slow or stuck", why, took}
	case slow:
		return Diagnosis{Slow, "Slow", why, took}
	case f.ReportInterval > 0 && f.Record.Alive != nil && f.Record.Alive.Progress != "":
		return Diagnosis{Working, "Working", why, took}
	}
	return Diagnosis{Working, "Nothing unusual", why, took}
}

// durationText compares how long the hold has lasted with earlier ones, and reports whether that is unusually long.
func (f *Input) durationText() (why Sentence, long bool) {
	held := f.Now.Sub(f.Record.LockedAt)
	if f.MedianHold == 0 || f.Record.LockedAt.IsZero() || held < 0 {
		return nil, false
	}
	long = held > f.P95Hold
	usually := ", usually " + text.Duration(f.MedianHold)
	if !long && held > upToTimes*f.MedianHold { // else it would read like a contradiction
		usually += ", up to " + text.Duration(f.P95Hold)
	}
	if f.Forced {
		if usually += " when others end it"; !long { // says nothing: they are no measure of those that went well
			return nil, false
		}
	}
	return why.Say("held for ").Since(f.Record.LockedAt).Say(usually), long
}

// reportsText describes how often the holder reports, and reports whether reports are missing.
func (f *Input) reportsText() (why Sentence, missing bool) {
	switch r := f.Record; {
	case r.Alive == nil:
		return nil, false
	case f.isLate() && !ReportsProgress(r) && f.silence() <= silentTimes*f.ReportInterval:
		return why.Say("only heartbeats since, last ").Since(r.Alive.At).Say(" ago"), false
	case f.ReportInterval == 0:
		return why.Say("last report ").Since(r.Alive.At).Say(" ago"), false
	case f.silence() > silentTimes*f.ReportInterval:
		return why.Say("it reported about every " + text.Duration(f.ReportInterval) +
			", but not for ").Since(r.Alive.At), true
	}
	who := "it"
	if f.Record.Alive.Progress == "" { // perhaps only heartbeats
		who = "its process"
	}
	return why.Say(who + " reports about every " + text.Duration(f.ReportInterval) + ", last ").
		Since(f.Record.Alive.At).Say(" ago"), false
}

// reportsAsExpected reports whether the holder reported progress or, before its alert, reports as often as before.
func (f *Input) reportsAsExpected() bool {
	return ReportsProgress(f.Record) || f.ReportInterval > 0 && !f.isLate()
}

func (f *Input) isLate() bool {
	return f.Judged.State == metadata.StateAlerting || f.Judged.State == metadata.StateExpired
}

// silence returns how long ago the holder last reported; 0 for one that never did.
func (f *Input) silence() time.Duration {
	if f.Record.Alive == nil {
		return 0
	}
	return f.Now.Sub(f.Record.Alive.At)
}

func (f *Input) waitText() (why Sentence) {
	for i, w := range f.Waits {
		said := "its process waits for "
		if i > 0 {
			said = ", which waits for "
		}
		if w.Lock == "" {
			why = why.Say(said + "this lock")
		} else {
			why = why.Say(said).Lock(w.Lock)
		}
		if !w.Since.IsZero() {
			why = why.Say(" for ").Since(w.Since)
		}
		if w.Holder != "" {
			why = why.Say(", held by ").Value(w.Holder)
		}
	}
	return why
}

// EndedText returns how the holder ended, according to the statement of a witness.
func EndedText(s *metadata.Statement) Sentence {
	what, how := protocol.WhatEnded(s)
	why := Sentence{}.Say(what)
	if at := protocol.EndedAt(s); !at.IsZero() {
		why = why.Say(" ").Since(at).Say(" ago")
	}
	if how != "" {
		why = why.Say(" " + how)
	}
	return why
}

// IsSuspected reports whether a witness suspects that the holder has ended, and the holder has not reported since.
func IsSuspected(r *metadata.Record) bool {
	s := r.Suspicion
	return s != nil && s.Cause != metadata.CauseCommandLives && !(r.Alive != nil && r.Alive.Revision > s.Revision)
}

func reserved(r *metadata.Record) bool {
	_, is := r.Attributes["reserved"]
	return is
}

// String returns the label and the sentence as of now; empty if nothing is known.
func (d Diagnosis) String(now time.Time) string {
	if d.Condition == Unknown {
		return ""
	}
	return d.Label + ": " + d.Why.String(now) + "."
}
