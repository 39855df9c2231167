package headline

import (
	"github.com/clustermutex/unlocker/internal/diagnosis"
	"github.com/clustermutex/unlocker/internal/locks"
	"github.com/clustermutex/unlocker/internal/protocol"
)

// Step is something to do about a lock, and what it costs.
type Step struct {
	Kind     StepKind
	Title    string
	Effect   diagnosis.Sentence
	Commands []string // for a shell, the best first; empty: it needs a page
}

// StepKind is what is done.
type StepKind string

// The kinds of steps. A page leads there, as far as its reader may; the command line has a command.
const (
	NoStep      StepKind = ""             // nothing to do
	LookAtView  StepKind = "status"       // see why etcd is silent
	ReadRunbook StepKind = "runbook"      // what to do about unlockers that fail, or a lock that they leave
	LookAtCycle StepKind = "cycle"        // see who waits for whom
	LookAtLock  StepKind = "look"         // look at the process, its pod or its host
	GiveTime    StepKind = "more_time"    // the holder works, but needs longer
	AskToFinish StepKind = "ask"          // the holder can stop early
	End         StepKind = "end"          // end the process, which releases the lock
	SeeProblems StepKind = "problems"     // what is wrong with the record
	Force       StepKind = "force_unlock" // take the lock away
)

// Words are the step on a button; empty: there is none for it.
func (k StepKind) Words() string {
	switch k {
	case LookAtView:
		return "See the status of etcd"
	case ReadRunbook:
		return "Open the runbook"
	case LookAtCycle:
		return "See who waits for whom"
	case GiveTime:
		return "Give more time…"
	case AskToFinish:
		return "Ask to finish…"
	case Force:
		return "Force unlock…"
	}
	return ""
}

// Verb is what an operator does to the hold with this step; empty: nothing.
func (k StepKind) Verb() protocol.Verb {
	switch k {
	case GiveTime:
		return protocol.VerbExtend
	case AskToFinish:
		return protocol.VerbAsk
	case Force:
		return protocol.VerbForceUnlock
	}
	return ""
}

// runbooks is where the runbooks are, by the names of alerts in lower case.
const runbooks = "https://github.com/clustermutex/unlocker/blob/main/docs/runbooks.md#"

// Runbook is where it is written what to do about the class; empty where nothing is wrong.
func (v *Headline) Runbook() string {
	alert, wrong := map[locks.Class]string{
		locks.ClassStale:     "unlockerviewstale",
		locks.ClassUnlockers: v.unlockers,
		locks.ClassDeadlock:  "unlockerdeadlock",
		locks.ClassUnclaimed: "unlockerlockunclaimed",
		locks.ClassOverdue:   "unlockerlockexpired",
		locks.ClassDead:      "unlockerlockabandoned",
		locks.ClassSilent:    "unlockerlockalerting",
		locks.ClassLate:      "unlockerlockalerting",
		locks.ClassMalformed: "unlockerlockmalformed",
	}[v.Class]
	switch {
	case !wrong:
		return ""
	case v.IsInconsistent:
		alert = "unlockerlockinconsistent"
	}
	return runbooks + alert
}

// Next is the first step; none where nothing is wrong, or where it ends by itself.
func (v *Headline) Next() StepKind {
	if len(v.Steps) == 0 || v.Class >= locks.ClassLeaving {
		return NoStep
	}
	return v.Steps[0].Kind
}

// Command is the next step on the command line, or the address of a runbook.
func (v *Headline) Command() string {
	switch {
	case v.Next() == NoStep:
		return ""
	case len(v.Steps[0].Commands) > 0:
		return v.Steps[0].Commands[0]
	}
	return v.Runbook()
}
