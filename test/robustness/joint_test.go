package robustness

import (
	"strconv"
	"strings"
	"time"

	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/jobs"
)

// countPrefix is where the keys are that are only written together with an acquisition.
const countPrefix = resourcePrefix + ".count/"

// period is the last one of a job.
type period struct {
	value, before string
	hold          *hold // that took it
}

// together checks that of several locks which are taken at once all are taken.
func (g *ledger) together(revision int64) {
	taken := map[string]int{}
	for _, h := range g.now {
		if h.token == revision && h.way == opTryAll {
			taken[h.question]++
		}
	}
	for _, h := range g.now {
		if n := taken[h.question]; h.token == revision && h.way == opTryAll && n != h.names {
			g.found(ruleTogether, "%s took %q at revision %d with %d of %d locks", h.uuid, h.lock, h.token, n, h.names)
		}
	}
}

// counted checks a write that an acquisition does, and that nobody does without it.
func (g *ledger) counted(k keyed) {
	lock, isCount := cutPrefix(k.key, countPrefix)
	if !isCount || k.deleted {
		return
	}
	by, seen, _ := strings.Cut(k.value, " ")
	if h := g.now[lock]; h == nil || h.token != k.revision || h.question != by {
		g.found(ruleCount, "%s wrote %s at revision %d and did not take %q with that, which %v has", by, k.key,
			k.revision, lock, h)
	}
	if was := strconv.FormatInt(g.counts[lock], 10); seen != was {
		g.found(ruleCount, "%s took %q at revision %d on condition that its key was written at %s, and it was at %s",
			by, lock, k.revision, seen, was)
	}
	g.counts[lock] = k.revision
}

// periodOf checks that periods only go forward, each with a hold of its own, or back in the end of that hold.
func (g *ledger) periodOf(k keyed, before map[string]*hold) {
	was := g.periods[k.Lock]
	h := g.now[k.Lock]
	if h != nil && h.token == k.revision {
		now := parseTime(k.value)
		last := parseTime(was.value)
		if said := parseInstant(h.period); !now.After(last) || !now.Equal(said) {
			g.found(rulePeriod, "%v took the period %v at revision %d after %v, and says that it has %v", h, now,
				k.revision, last, said)
		}
		g.periods[k.Lock] = period{k.value, was.value, h}
		return
	}
	ended := before[k.Lock] != nil && before[k.Lock] == was.hold && h == nil
	if !ended || k.value != was.before {
		g.found(rulePeriod, "the period of %q was set from %q to %q at revision %d by nobody", k.Lock, was.value,
			k.value, k.revision)
	}
	g.periods[k.Lock] = period{value: k.value}
}

// ran expects a period with each hold that runs a job.
func (g *ledger) ran(h *hold, txn map[protocol.Kind][]keyed) {
	for _, k := range txn[protocol.KindPeriod] {
		if k.Lock == h.lock {
			return
		}
	}
	if h.way == opOnce {
		g.found(rulePeriod, "%v runs without a period", h)
	}
}

// task checks a change of a task: somebody adds it, takes it with its lock, writes it while having the lock, or ends
// both.
func (g *ledger) task(k keyed, before map[string]*hold) {
	lock := k.Lock
	was := g.tasks[lock]
	t := protocol.Task{}
	if !k.deleted {
		t, _ = protocol.Unmarshal[protocol.Task]([]byte(k.value))
	}
	had := before[lock]
	has := g.now[lock]
	by := func(h *hold) bool { return strings.HasPrefix(h.question, t.By+"-") }
	allowed := false
	switch {
	case was == "":
		allowed = t.State == jobs.StateNew
	case has != nil && has.token == k.revision:
		allowed = t.State == protocol.StateInProgress && was != jobs.StateDone && by(has)
	case had != nil && had == has:
		allowed = t.State == protocol.StateInProgress && by(has)
	case had != nil && has == nil:
		allowed = t.State != protocol.StateInProgress && (k.deleted || by(had))
	}
	if !allowed {
		g.found(ruleTask, "%s: from %q to %q by %s at revision %d, when %v had it before and %v after", lock, was,
			t.State, t.By, k.revision, had, has)
	}
	if g.tasks[lock] = t.State; k.deleted {
		delete(g.tasks, lock)
	}
}

// parseInstant reads a time as people write it; none where there is none.
func parseInstant(s string) time.Time {
	t, _ := time.Parse(time.RFC3339Nano, s)
	return t
}
