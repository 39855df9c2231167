package headline

import (
	"cmp"

	"github.com/clustermutex/unlocker/internal/diagnosis"
	"github.com/clustermutex/unlocker/internal/locks"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// stepRow has the steps for a class of locks.
type stepRow struct {
	class locks.Class
	when  func(*Input, *locks.HeldLock) bool // nil: always
	steps []StepKind
}

// stepTable returns the steps for each held lock, from harmless to dangerous. The first row that matches counts,
// without the steps that make no sense for the holder.
func stepTable() []stepRow {
	isKept := func(c *Input, l *locks.HeldLock) bool { return c.WhyNeverRemoved(l) != "" }
	isMisplaced := func(_ *Input, l *locks.HeldLock) bool { return l.Misplaced }
	progresses := func(_ *Input, l *locks.HeldLock) bool { return diagnosis.ReportsProgress(l.Record) }
	return []stepRow{
		{locks.ClassOverdue, isKept, []StepKind{LookAtLock, EndProcess, ForceUnlock}},
		{locks.ClassOverdue, nil, []StepKind{ReadRunbook, LookAtLock, ForceUnlock}},
		{locks.ClassDead, nil, []StepKind{ForceUnlock}},
		{locks.ClassSilent, nil, []StepKind{LookAtLock, GiveTime, AskToFinish, EndProcess, ForceUnlock}},
		{locks.ClassLate, progresses, []StepKind{GiveTime, AskToFinish, LookAtLock, EndProcess, ForceUnlock}},
		{locks.ClassLate, nil, []StepKind{LookAtLock, GiveTime, AskToFinish, EndProcess, ForceUnlock}},
		{locks.ClassMalformed, isMisplaced, []StepKind{SeeProblems}},
		{locks.ClassMalformed, nil, []StepKind{SeeProblems, LookAtLock, EndProcess, ForceUnlock}},
		{locks.ClassLeaving, nil, []StepKind{LookAtLock, ForceUnlock}},
		{locks.ClassOnTime, nil, []StepKind{GiveTime, AskToFinish, LookAtLock, EndProcess, ForceUnlock}},
	}
}

func (c *Input) stepsFor(l *locks.HeldLock) []Step {
	for _, row := range stepTable() {
		if row.class == l.Class && (row.when == nil || row.when(c, l)) {
			return c.describe(l, row.steps)
		}
	}
	return nil
}

// showStep returns a step that shows the lock: the only one if nothing else can be done about its holder.
func showStep(kind StepKind, lock string) []Step {
	return []Step{{Kind: kind, Commands: []string{text.Mutexctl("show", lock)}}}
}

// describe describes the steps of these kinds that make sense for the holder.
func (c *Input) describe(l *locks.HeldLock, kinds []StepKind) (steps []Step) {
	for _, kind := range kinds {
		s := Step{Kind: kind}
		if !c.makesSense(l, kind) {
			continue
		}
		s.Title, s.Effect = words(l, kind)
		s.Commands = commands(l.Record, kind)
		steps = append(steps, s)
	}
	return steps
}

// makesSense reports whether the step can do anything: a holder that has ended neither finishes nor needs time, and the
// end of a process does not end work that outlives it.
func (c *Input) makesSense(l *locks.HeldLock, kind StepKind) bool {
	r := l.Record
	isGone := r.ProvenDead() || r.Token == 0
	switch kind {
	case LookAtLock:
		return !isGone
	case EndProcess:
		return !isGone && (r.Process == nil || !r.Process.Detached) && len(endCommands(r)) > 0
	case GiveTime, AskToFinish:
		return !isGone && kind.Verb().CheckHoldNow(r, c.Now) == nil
	}
	return true
}

// words returns when the step is right, and what it does and costs.
func words(l *locks.HeldLock, kind StepKind) (title string, effect sentence) {
	switch kind {
	case LookAtCycle:
		return "Who waits for whom?", effect.Say("When one of them gives up or ends, the others can continue.")
	case ReadRunbook:
		return "Why is it still there?", effect.Say("The runbook says what keeps unlockers from removing it.")
	case SeeProblems:
		if l.Misplaced {
			effect = effect.Say("Nothing removes it but you, once no process works under it. ")
		}
		return "What is wrong with the record?", effect.Say("Fix the client that wrote it.")
	case LookAtLock:
		return lookWords(l.Record)
	case GiveTime:
		effect = effect.Say("Alert and auto-unlock come later.")
		if l.Waiters > 0 {
			effect = effect.Say(" " + text.Count(l.Waiters, "waiter") + pick(l.Waiters == 1, " waits", " wait") +
				" that much longer.")
		}
		return "It is working, but needs longer", effect
	case AskToFinish:
		return "It can stop early", effect.Say("It is notified, but may carry on.")
	case EndProcess:
		if isMutexctlRun(l.Record) {
			return "It hangs: end it", effect.Say("Ends the wrapper, which ends its command and releases the lock.")
		}
		return "It hangs: end it", effect.Say("A clean exit releases the lock. After a hard kill, a witness or " +
			"the deadline does.")
	}
	return forceWords(l)
}

func lookWords(r *metadata.Record) (title string, effect sentence) {
	switch {
	case diagnosis.IsSuspected(r):
		return "Is it dead?", effect.Say("A witness suspects so, without proof.")
	case isMutexctlRun(r):
		return "Is it working?", effect.Say("Heartbeats come from mutexctl run and prove nothing about the command.")
	}
	return "Is it working?", effect.Say("Neither heartbeats nor silence proves anything about its work.")
}

func forceWords(l *locks.HeldLock) (title string, effect sentence) {
	switch r := l.Record; {
	case r.Token == 0:
		return "Nobody holds it: remove the keys", effect.Say("If someone takes it first, they keep it.")
	case r.ProvenDead():
		return pick(l.Class == locks.ClassLeaving, "It cannot wait", "It is dead: free the lock"),
			effect.Say("First make sure that nothing it started still works.")
	case l.Rhythm() > 0:
		effect = effect.Say("Takes the lock from a holder that was alive ").Since(r.Alive.At).Say(" ago. ")
	default:
		effect = effect.Say("Takes the lock from a holder that nobody has proven dead. ")
	}
	return "The machine is gone, and nobody can end the process",
		effect.Say("The holder is not stopped: two may then work at once.")
}

func commands(r *metadata.Record, kind StepKind) []string {
	hold := cmp.Or(r.UUID, "none")
	switch kind {
	case LookAtCycle:
		return []string{text.Mutexctl("show", r.Name)}
	case LookAtLock:
		return append(lookCommands(r), text.Mutexctl("show", r.Name))
	case SeeProblems:
		if r.Misplaced {
			return misplacedCommands(r)
		}
		return []string{text.Mutexctl("show", r.Name, "--raw")}
	case EndProcess:
		return endCommands(r)
	case GiveTime:
		return []string{text.Mutexctl("extend", r.Name, "--uuid", hold, "--by", "10m", "--reason", "")}
	case AskToFinish, ForceUnlock:
		command := pick(kind == ForceUnlock, "force-unlock", "ask")
		return []string{text.Mutexctl(command, r.Name, "--uuid", hold, "--reason", "")}
	}
	return nil
}
