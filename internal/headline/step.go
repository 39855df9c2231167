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

// StepKind is the kind of a step.
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
	EndProcess  StepKind = "end"          // end the process, which releases the lock
	SeeProblems StepKind = "problems"     // what is wrong with the record
	ForceUnlock StepKind = "force_unlock" // take the lock away
)

// Words returns the text of the step's button; empty if it has none.
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
	case ForceUnlock:
		return "Force unlock…"
	}
	return ""
}

// Verb returns the operator action that the step is; empty if it is none.
func (k StepKind) Verb() protocol.Verb {
	switch k {
	case GiveTime:
		return protocol.VerbExtend
	case AskToFinish:
		return protocol.VerbAsk
	case ForceUnlock:
		return protocol.VerbForceUnlock
	}
	return ""
}

// runbooksURL is the address of the runbooks, up to the name of an alert in lower case.
const runbooksURL = "https://github.com/clustermutex/unlocker/blob/main/docs/runbooks.md#"

// Runbook returns the address of the runbook for the class; empty if nothing is wrong.
func (v *Headline) Runbook() string {
	alert, wrong := map[locks.Class]string{
		locks.ClassStale:     "unlockerviewstale",
		locks.ClassUnlockers: v.unlockerAlert,
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
	return runbooksURL + alert
}

// Next returns the first step; none if nothing is wrong, or if it ends by itself.
func (v *Headline) Next() StepKind {
	if len(v.Steps) == 0 || v.Class >= locks.ClassLeaving {
		return NoStep
	}
	return v.Steps[0].Kind
}

// Command returns the next step on the command line, or the address of a runbook.
func (v *Headline) Command() string {
	switch {
	case v.Next() == NoStep:
		return ""
	case len(v.Steps[0].Commands) > 0:
		return v.Steps[0].Commands[0]
	}
	return v.Runbook()
}
