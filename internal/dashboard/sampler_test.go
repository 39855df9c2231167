package dashboard_test

import (
	"flag"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/dashboard"
)

var worlds = flag.Uint64("worlds", 40, "in how many worlds the sentence of the page is compared with what is true")

// TestSentenceDescribesTheFirstNonemptyClass lets an hour pass in several worlds, in each of which locks are
// taken, beat, fall silent, die and are waited for at random, under unlockers of every kind. At each instant the page
// names a lock. Which ones it may name follows from the plan of the world alone, as docs/adr/0029 describes.
func TestSentenceDescribesTheFirstNonemptyClass(t *testing.T) {
	t.Parallel()
	named := map[string]int{}
	for seed := range *worlds {
		p := newPlan(seed)
		d := p.scene.dashboard(t, p.shown)
		for range 150 {
			p.happens()
			class := p.sample(t, d)
			named[class]++
			if t.Failed() {
				t.Fatalf("seed %d, at %v", seed, p.now())
			}
		}
	}
	for _, class := range classes {
		if named[class] < 20 {
			t.Errorf("the sentence was of the class %s only %d times", class, named[class])
		}
	}
}

// classes are those of the table, in its order.
var classes = []string{"stale", "unlockers", "deadlock", "unclaimed", "overdue", "dead", "silent", "late", "malformed",
	"leaving", "calm"}

// The indexes of the classes in the table.
const (
	isStale = iota
	isUnlockers
	isDeadlock
	isUnclaimed
	isOverdue
	isDead
	isSilent
	isLate
	isMalformed
	isLeaving
	isCalm
)

// sample compares the sentence on top with the truth.
func (p *plan) sample(t *testing.T, d *dashboard.Dashboard) (class string) {
	t.Helper()
	got, _ := fetch[struct {
		Verdict struct{ Class, Lock, Sentence string }
	}](t, d, "/api/v1/summary")
	said := got.Verdict
	truth := p.truth()
	if want := classes[slices.Min(slices.Collect(maps.Values(truth)))]; said.Class != want {
		t.Errorf("the sentence is of the class %s, want %s: %s", said.Class, want, said.Sentence)
	}
	if is, known := truth[said.Lock]; !known || classes[is] != said.Class {
		t.Errorf("it names %q, which is of another class than %s: %s", said.Lock, said.Class, said.Sentence)
	}
	if !strings.Contains(said.Sentence, said.Lock) {
		t.Errorf("it does not name %s: %s", said.Lock, said.Sentence)
	}
	if p.looksAt(said.Lock) && slices.ContainsFunc(p.jobs, func(j *job) bool {
		return classes[truth[j.lock]] == said.Class && !strings.Contains(j.lock, "#") && !p.looksAt(j.lock)
	}) {
		t.Errorf("it names an acknowledged lock before others: %s", said.Sentence)
	}
	return said.Class
}

// looksAt reports whether a lock with one holder, in a state other than held, is acknowledged.
func (p *plan) looksAt(lock string) bool {
	return slices.ContainsFunc(p.jobs, func(j *job) bool {
		return j.lock == lock && p.classOf(j) != isCalm && j.looked.After(p.now())
	})
}

// truth returns the class of everything that the sentence can be about: locks by name, and the rest without one.
func (p *plan) truth() map[string]int {
	truth := map[string]int{"": isCalm}
	for _, j := range p.jobs {
		truth[j.lock] = p.classOf(j)
		if name, _, shared := strings.Cut(j.lock, "#"); shared {
			worst, known := truth[name]
			if !known {
				worst = isCalm
			}
			truth[name] = min(worst, truth[j.lock])
		}
	}
	if p.free {
		truth["free/lock"] = isUnclaimed
	}
	if p.blocked {
		truth["pair/a"] = isDeadlock
	}
	switch {
	case p.silent:
		truth[""] = isStale
	case p.regime.none, p.regime.disagree, p.regime.heldBack == "clock":
		truth[""] = isUnlockers
	}
	return truth
}

// classOf returns the class of a lock according to the table.
func (p *plan) classOf(j *job) int {
	now := p.now()
	unlocks := !p.regime.watches && !p.regime.none &&
		(len(p.regime.exclude) == 0 || !strings.HasPrefix(j.lock, "job/"))
	leaves := func(by time.Time) int {
		if unlocks && now.Before(by) {
			return isLeaving
		}
		return isOverdue
	}
	switch {
	case j.unreadable:
		return isMalformed
	case !now.Before(j.unlock): // skew, warning, and what a removal takes
		return leaves(j.unlock.Add(40 * time.Second))
	case !j.died.IsZero() && !j.denied:
		if !unlocks || !p.regime.buriesDead {
			return isDead
		}
		return leaves(j.died.Add(15 * time.Second)) // grace, and what a removal takes
	case now.Before(j.alert):
		return isCalm
	case len(j.reports) == 0, !j.doubted.IsZero(), now.After(j.silentFrom()):
		return isSilent
	}
	return isLate
}

// silentFrom returns the last moment at which a process does not count as silent: three times its rhythm after its last
// report. A single report has no rhythm, so its promise counts.
func (j *job) silentFrom() time.Time {
	n := len(j.reports)
	if n == 0 {
		return time.Time{}
	}
	last := j.reports[n-1]
	if n > 1 {
		return last.Add(3 * (last.Sub(j.taken) / time.Duration(n)))
	}
	promised := j.alert
	if !promised.After(last) {
		promised = j.unlock
	}
	return last.Add(3 * promised.Sub(last))
}
