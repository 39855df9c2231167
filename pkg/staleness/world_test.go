package staleness_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/pkg/metadata"
	. "github.com/clustermutex/unlocker/pkg/staleness"
)

// This is the world in which the rules were model-checked, in discrete time: a holder that renews every 3 ticks, and
// every 2 ticks while renewals fail; a store that is up, down, or refuses writes while it serves reads; an unlocker
// whose clock is off by the skew, may jump by a whole time to live, and that may be restarted at any tick and then
// remembers nothing. The holder's clock is right, or off by more than a time to live. All of its histories are
// explored, with Decide making the decisions:
//
//	G1  a living holder never loses its lock, unless its clock is off and its last write was not watched arriving
//	G2  a dead holder's lock is gone by its deadline + 2 skews, once the store was writable for MinWarning without a
//	    gap and the clock is verified; else after one more time to live of watching it unchanged. The deadline of a
//	    holder whose clock is behind is that which a right clock would have written
const (
	ticks      = 24
	renewEvery = 3
	retryEvery = 2 // MinWarning is as long
	ttl        = 6
	smallSkew  = 1
	largeSkew  = 4
	flips      = 3 // changes of the store's mode
	tick       = 10 * time.Second
)

const (
	up = iota
	down
	noWrites
)

// world is one state; its values are ticks on the true clock, which the holder's clock and the monotonic clock show.
type world struct {
	skew, mode, flips           int8
	held, alive                 bool
	clock                       int8 // the holder's wall clock is ahead by this
	deadline, renewed, next     int8 // the holder's: deadline, when it wrote it, both by its clock; its next attempt
	off                         int8 // the unlocker's wall clock is ahead by this
	gap, seen                   int8 // last gap; when it last saw the record change
	live                        bool // it watched that
	seenDeadline, seenRenewed   int8 // the record as it last saw it
	jumped, restarted, verified bool
	writableFor                 int8 // ticks of a writable store without a gap
}

// rules is what an unlocker does in this world. The zero value is correct; each field leaves something out.
type rules struct {
	noGapWhenStoreIsDown, noGapAtStart, readProbe, shortWarning, noSkew, jumpIsOnlyAGap, forgetsJumpAtRestart,
	noWarning, noArrival bool
}

func TestALivingHolderNeverLosesItsLockAndADeadOnesGoes(t *testing.T) {
	t.Parallel()
	broken, states := explore(rules{}, false)
	if broken == "" {
		broken, _ = explore(rules{}, true)
	}
	if broken != "" {
		t.Error(broken)
	}
	if states < 50_000 {
		t.Errorf("only %d states: the world does not do what it should", states)
	}
}

func TestEveryRuleIsNeeded(t *testing.T) {
	for _, c := range []struct {
		name string
		rules
	}{
		{"an outage has to be a gap", rules{noGapWhenStoreIsDown: true}},
		{"a restart has to be a gap", rules{noGapAtStart: true}},
		{"the canary has to be a put", rules{readProbe: true}},
		{"the warning has to outlast the holders' retry delay", rules{shortWarning: true}},
		{"the warning has to last at all", rules{noWarning: true}},
		{"the skew has to be added", rules{noSkew: true}},
		{"a clock that jumped cannot be waited out", rules{jumpIsOnlyAGap: true}},
		{"a clock that was never compared is not sane", rules{forgetsJumpAtRestart: true}},
		{"what was watched arriving has to stay for its time to live", rules{noArrival: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if broken, states := explore(c.rules, false); broken == "" {
				t.Errorf("without it nothing is lost in %d states", states)
			}
		})
	}
}

// explore follows all histories and returns the first broken promise. A lazy unlocker may skip an allowed removal; a
// prompt one may not, and has to keep G2.
func explore(r rules, prompt bool) (broken string, states int) {
	now := map[world]struct{}{}
	for _, skew := range []int8{smallSkew, largeSkew} {
		w := world{skew: skew, flips: flips, held: true, alive: true, next: renewEvery, live: true, verified: true}
		for _, w.clock = range []int8{0, -ttl - skew, ttl + skew} {
			w.deadline = ttl + w.clock
			w.renewed = w.clock
			w.seenDeadline = w.deadline
			w.seenRenewed = w.renewed
			for _, w.off = range []int8{skew, -skew} {
				now[w] = struct{}{}
			}
		}
	}
	for t := int8(0); t < ticks && broken == ""; t++ {
		then := make(map[world]struct{}, 3*len(now))
		for w := range now {
			states++
			w.step(t, r, prompt, func(w world) { then[w] = struct{}{} }, func(b string) { broken = b })
		}
		now = then
	}
	return broken, states
}

// step calls next with every world that can follow w.
func (w world) step(t int8, r rules, prompt bool, next func(world), broken func(string)) {
	for _, w := range w.storeChanges() {
		for _, dies := range []bool{false, true} {
			w := w
			if dies && !w.alive {
				continue
			}
			if w.alive = w.alive && !dies; !w.alive {
				w.next = 0
			}
			if !w.holderActs(t) {
				broken(fmt.Sprintf("a living holder found its lock removed at %d: %+v", t, w))
			}
			for _, w := range w.unlockerChanges(t, r) {
				w.observe(t, r)
				removes := w.held && w.mode != down && w.decide(t, r)
				if removes && w.alive && w.safe() {
					broken(fmt.Sprintf("the lock of a living holder is removed at %d: %+v", t, w))
				}
				if removes {
					removed := w
					removed.held = false
					next(removed)
				}
				if !removes || !prompt {
					if w.overdue(t) && prompt {
						broken(fmt.Sprintf("the lock of a dead holder is still there at %d: %+v", t, w))
					}
					next(w)
				}
			}
		}
	}
}

// safe reports whether the promise is made to the holder.
func (w world) safe() bool { return w.clock == 0 || w.live }

func (w world) storeChanges() []world {
	worlds := []world{w}
	for mode := int8(up); w.flips > 0 && mode <= noWrites; mode++ {
		changed := w
		changed.mode, changed.flips = mode, w.flips-1
		worlds = append(worlds, changed)
	}
	return worlds
}

func (w *world) holderActs(t int8) bool {
	switch {
	case !w.alive || t < w.next:
	case w.mode == up && !w.held:
		if w.safe() {
			return false
		}
		w.alive = false
		w.next = 0
	case w.mode == up:
		w.deadline = t + w.clock + ttl
		w.renewed = t + w.clock
		w.next = t + renewEvery
	default:
		w.next = t + retryEvery
	}
	return true
}

// unlockerChanges are the jumps of its clock and the restarts that can happen to it at this tick.
func (w world) unlockerChanges(t int8, r rules) []world {
	worlds := []world{w}
	if !w.jumped {
		w := w
		w.jumped = true
		w.off = ttl + w.skew
		w.verified = r.jumpIsOnlyAGap
		if r.jumpIsOnlyAGap {
			w.gap = t
		}
		worlds = append(worlds, w)
	}
	for _, w := range worlds {
		if !w.restarted {
			w.restarted = true
			w.gap = t
			w.seen = t
			w.seenDeadline = w.deadline
			w.seenRenewed = w.renewed
			w.live = false
			if r.noGapAtStart {
				w.gap = -100
				w.seen = -100
			}
			w.verified = w.verified || r.forgetsJumpAtRestart
			worlds = append(worlds, w)
		}
	}
	return worlds
}

func (w *world) observe(t int8, r rules) {
	canaryFails := w.mode == down || w.mode == noWrites && !r.readProbe
	if canaryFails && !r.noGapWhenStoreIsDown {
		w.gap = t
	}
	if w.writableFor++; w.mode != up || w.gap == t {
		w.writableFor = 0
	}
	if w.mode != down && w.seenDeadline != w.deadline {
		w.seen = t
		w.seenDeadline = w.deadline
		w.seenRenewed = w.renewed
		w.live = true
	}
}

// decide asks the code under test.
func (w world) decide(t int8, r rules) bool {
	seconds := func(n int8) time.Duration { return time.Duration(n) * tick }
	record := &metadata.Record{
		UUID: "x", LockedAt: start, AlertAt: start.Add(seconds(w.seenRenewed)),
		AutoUnlockAt: start.Add(seconds(w.seenDeadline)),
		Alive:        &metadata.Alive{At: start.Add(seconds(w.seenRenewed))},
		Seen:         metadata.Seen{Changed: seconds(w.seen)},
	}
	if w.live && !r.noArrival {
		record.Seen.Arrived = max(1, record.Seen.Changed)
	}
	policy := Policy{ClockSkew: seconds(w.skew), MinWarning: seconds(retryEvery)}
	if r.noSkew {
		policy.ClockSkew = 0
	}
	if r.shortWarning {
		policy.MinWarning = seconds(retryEvery - 1)
	}
	if r.noWarning {
		policy.MinWarning = 0
	}
	cond := Conditions{LastGap: seconds(w.gap), Writable: w.mode == up || r.readProbe, Fresh: true, Forward: true,
		WallClock: Unverified}
	if r.noGapWhenStoreIsDown {
		cond.Writable = true
	}
	if w.verified {
		cond.WallClock = Verified
	}
	return Decide(record, policy, cond, Moment{Wall: start.Add(seconds(t + w.off)), Mono: seconds(t)}).HeldBack == ""
}

func (w world) overdue(t int8) bool {
	return w.held && !w.alive && t >= max(w.deadline, w.deadline-w.clock)+2*w.skew && w.writableFor >= retryEvery &&
		(w.verified || t-w.seen >= ttl)
}
