package pages

import (
	"slices"
	"strings"

	"github.com/clustermutex/unlocker/internal/dashboard/phrase"
	"github.com/clustermutex/unlocker/internal/dashboard/site"
	"github.com/clustermutex/unlocker/internal/diagnosis/deadlock"
	"github.com/clustermutex/unlocker/internal/text"
)

const (
	maxCycles      = 10
	maxCycleSteps  = 20
	maxHoldersStep = 5 // who are named in one step
)

// cycleView is a cycle for people: who waits for which lock of whom.
type cycleView struct {
	Steps []cycleStep
	More  int // steps that are not shown
	Since *phrase.Moment
}

type cycleStep struct{ Who, Lock, URL, Held string }

func (p *Pages) cycleViews(r *site.Request, found []deadlock.Cycle) []cycleView {
	var views []cycleView
	at := r.Viewpoint()
	for _, c := range found {
		v := cycleView{More: max(0, len(c.Waits)-maxCycleSteps), Since: at.Lasting(c.Since)}
		for _, w := range c.Waits[:len(c.Waits)-v.More] {
			v.Steps = append(v.Steps, cycleStep{shownProcess(w.Who), text.Clip(w.Lock, site.MaxNameShown),
				r.Site.URLs.Lock(w.Lock, ""), heldBy(w.Held)})
		}
		views = append(views, v)
	}
	return views
}

// heldBy names the holders of the lock that are in the cycle.
func heldBy(all []deadlock.Process) string {
	var names []string
	for _, p := range all[:min(len(all), maxHoldersStep)] {
		names = append(names, shownProcess(p))
	}
	if more := len(all) - len(names); more > 0 {
		names = append(names, phrase.Plural(more, "other", "others"))
	}
	return strings.Join(names, " and ")
}

func shownProcess(p deadlock.Process) string {
	host := site.HostPID(p.Host, p.PID)
	if p.Owner == "" {
		return host
	}
	return text.Clip(p.Owner, site.MaxWordShown) + " on " + host
}

// cyclesOf are the cycles that the lock, or the one that it is a share of, is part of.
func (p *Pages) cyclesOf(r *site.Request, lock string) []cycleView {
	s, err := r.Loaded()
	if err != nil {
		return nil
	}
	if r := s.Find(lock); r != nil {
		lock = r.Share.QueueName(lock)
	}
	var with []deadlock.Cycle
	for _, c := range s.Cycles() {
		if len(with) < maxCycles && slices.ContainsFunc(c.Waits, func(w deadlock.Wait) bool { return w.Lock == lock }) {
			with = append(with, c)
		}
	}
	return p.cycleViews(r, with)
}
