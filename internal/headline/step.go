package headline

import (
	"cmp"

	"github.com/clustermutex/unlocker/internal/locks"
	"github.com/clustermutex/unlocker/internal/text"
)

// Step is the one thing to do next.
type Step string

// The steps. A page leads there, as far as its reader may; the command line has a command.
const (
	NoStep      Step = ""             // nothing to do
	LookAtView  Step = "status"       // see why etcd is silent
	ReadRunbook Step = "runbook"      // what to do about unlockers that fail, or a lock that they leave
	LookAtCycle Step = "cycle"        // see who waits for whom
	LookAtLock  Step = "look"         // look at the process, its pod or its host
	Force       Step = "force_unlock" // it does not end by itself
	GiveTime    Step = "more_time"    // or ask the holder to finish
	SeeProblems Step = "problems"     // what is wrong with the record, and how to get rid of it
)

// runbooks is where the runbooks are, by the names of alerts in lower case.
const runbooks = "https://github.com/clustermutex/unlocker/blob/main/docs/runbooks.md#"

// Words are the step on a button.
func (s Step) Words() string {
	switch s {
	case LookAtView:
		return "See the status of etcd"
	case ReadRunbook:
		return "Open the runbook"
	case LookAtCycle:
		return "See who waits for whom"
	case LookAtLock:
		return "Look at its process"
	case Force:
		return "Force unlock…"
	case GiveTime:
		return "Give more time…"
	case SeeProblems:
		return "See what is wrong"
	}
	return "Nothing to do"
}

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
	if !wrong {
		return ""
	}
	return runbooks + alert
}

// Command is the step on the command line: a command of mutexctl, or the address of a runbook.
func (v *Headline) Command() string {
	lock := v.Lock
	if v.Holder != nil {
		if v.Holder.Misplaced { // mutexctl only lists it
			return v.Runbook()
		}
		lock = v.Holder.Name // of several the one that is meant
	}
	switch v.Next {
	case NoStep:
		return ""
	case LookAtLock, LookAtCycle, SeeProblems:
		return text.Mutexctl("show", lock)
	case Force:
		return text.Mutexctl("force-unlock", lock, "--uuid", v.hold(), "--reason", "")
	case GiveTime:
		return text.Mutexctl("extend", lock, "--uuid", v.hold(), "--by", "10m", "--reason", "")
	}
	return v.Runbook()
}

func (v *Headline) hold() string { return cmp.Or(v.Holder.UUID, "none") }
