package robustness

import (
	"fmt"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

type step struct {
	what  string // below
	by    string // who asked
	uuid  string
	token int64
	part  int  // of what can be taken
	maybe bool // it may also not have happened
}

const (
	stepTake    = "take"
	stepRefused = "refused" // the lock is held by uuid, perhaps among others, or free where that is empty
	stepAlive   = "alive"   // uuid still holds it
	stepLost    = "lost"    // uuid does not hold it
	stepEnd     = "end"     // uuid's hold ends, by its holder or by somebody else
)

type lockState struct {
	holders []holder // in the order of their tokens
	high    int64
}

type holder struct {
	holdID
	part int
}

// lockModel is a lock as its users understand it, with a number of parts: one for a mutex, the permits of a semaphore,
// one for each reader of a read-write lock. It knows nothing of etcd, records and queues.
func lockModel(parts int) porcupine.Model {
	return (&porcupine.NondeterministicModel{
		Init: func() []any { return []any{lockState{}} },
		Step: func(state, input, _ any) []any {
			s := state.(lockState)
			in := input.(step)
			var after []any
			if next, allowed := s.after(in, parts); allowed {
				after = append(after, next)
			}
			if in.maybe {
				after = append(after, s)
			}
			return after
		},
		Equal: func(a, b any) bool {
			s := a.(lockState)
			o := b.(lockState)
			return s.high == o.high && slices.Equal(s.holders, o.holders)
		},
	}).ToModel()
}

// after returns the state after a step, if the step is possible.
func (s lockState) after(in step, parts int) (lockState, bool) {
	taken := 0
	mine := -1
	for i, h := range s.holders {
		taken += h.part
		if h.holdID == (holdID{in.uuid, in.token}) {
			mine = i
		}
	}
	switch in.what {
	case stepTake:
		more := append(slices.Clone(s.holders), holder{holdID{in.uuid, in.token}, in.part})
		return lockState{more, in.token}, taken+in.part <= parts && in.token > s.high
	case stepRefused:
		return s, mine >= 0 || in.uuid == "" && taken == 0
	case stepAlive:
		return s, mine >= 0
	case stepLost:
		return s, mine < 0
	case stepEnd:
		if mine < 0 {
			return s, false
		}
		return lockState{slices.Delete(slices.Clone(s.holders), mine, mine+1), s.high}, true
	}
	return s, false
}

// histories builds one history for each lock, with all its parts: from the clients' answers, and from changes in etcd
// that no client was told of.
//
// An acquisition without an answer, or one that was refused or given up while an earlier request was in flight, may
// have taken the lock anyway: etcd's history has the hold, and the model may place it anywhere after the request. The
// end of a hold that its holder was not told of also comes from etcd's history: unlockers and operators are clients.
func (j *judgement) histories() map[string][]porcupine.Operation {
	h := &historian{ops: map[string][]porcupine.Operation{}, holds: j.known, asked: map[string]*question{},
		claimed: map[holdID]bool{}, ended: map[holdID]bool{}}
	for _, t := range j.told {
		for _, q := range t.questions {
			h.question(q)
		}
	}
	for _, hold := range j.holds {
		h.hold(hold)
	}
	return h.ops
}

type historian struct {
	ops            map[string][]porcupine.Operation
	holds          map[holdID]*hold
	asked          map[string]*question
	claimed, ended map[holdID]bool // holds of which a client was told that it got them, or ended them
}

func (h *historian) add(lock string, from, to int64, s step) {
	lock = baseOf(lock)
	h.ops[lock] = append(h.ops[lock], porcupine.Operation{Input: s, Call: from, Return: to})
}

func (h *historian) question(q *question) {
	h.asked[q.ID] = q
	a := q.answer
	switch {
	case q.got():
		h.claimed[a.of()] = true
		h.add(a.Record, q.At, a.At, step{stepTake, q.ID, a.UUID, a.Token, max(q.Part, 1), false})
	case acquires(q.Op) && a.Said == refused:
		h.add(q.Lock, q.At, a.At, step{stepRefused, q.ID, a.By, a.ByTok, 0, false})
	case q.Op == opAlive && a.Said == okay, q.Op == opGuard && a.Said == okay, q.Op == opAdopt && a.Said == okay:
		h.add(q.Lock, q.At, a.At, step{stepAlive, q.ID, q.UUID, q.Token, 0, false})
	case q.Op != opWrite && a.Said == lost:
		h.add(q.Lock, q.At, a.At, step{stepLost, q.ID, q.UUID, q.Token, 0, false})
	case q.Op == opUnlock && a.Said == okay && h.holds[q.of()] != nil && h.holds[q.of()].wiped:
		// A release whose first answer was lost looks like a deletion by hand without a note.
	case q.Op == opUnlock && a.Said == okay && !h.ended[q.of()]:
		h.ended[q.of()] = true
		h.add(q.Lock, q.At, a.At, step{stepEnd, q.ID, q.UUID, q.Token, 0, false})
	}
}

func (h *historian) hold(was *hold) {
	from := int64(0)
	if q := h.asked[was.Op]; q != nil {
		from = q.At
	}
	if !h.claimed[was.id()] {
		h.add(was.lock, from, never, step{stepTake, was.Op, was.uuid, was.token, was.part(), true})
	}
	if was.gone != 0 && !h.ended[was.id()] {
		h.add(was.lock, from, was.gone, step{stepEnd, was.goneBy, was.uuid, was.token, 0, false})
	}
}

const operations = "operations"

// linearizable expects each lock's operations to have an order that is valid for a single lock.
func (j *judgement) linearizable() {
	for lock, history := range j.histories() {
		j.stage.counts[operations] += len(history)
		for _, op := range history {
			if op.Input.(step).maybe {
				j.stage.counts["operations in doubt"]++
			}
		}
		switch porcupine.CheckOperationsTimeout(lockModel(whole(lock)), history, 20*time.Second) {
		case porcupine.Illegal:
			_, info := porcupine.CheckOperationsVerbose(lockModel(whole(lock)), history, 5*time.Second)
			j.found(ruleLinear, "the %d operations on %q: %s", len(history), lock, stuck(info))
		case porcupine.Unknown:
			j.found(ruleRun, "the %d operations on %q could not be checked within 20 seconds", len(history), lock)
		}
	}
}

// stuck returns how far the longest order goes, and what is next to it in time.
func stuck(info porcupine.LinearizationInfo) string {
	var longest []porcupine.Operation
	for _, partition := range info.PartialLinearizationsOperations() {
		for _, order := range partition {
			if len(order) > len(longest) {
				longest = order
			}
		}
	}
	if len(longest) == 0 {
		return "not one can be first"
	}
	text := ""
	for _, op := range longest[max(0, len(longest)-4):] {
		text += fmt.Sprintf("%+v; ", op.Input)
	}
	return fmt.Sprintf("%d can be put in order, the last of them: %s", len(longest), text)
}
