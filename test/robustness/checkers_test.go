package robustness

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/anishathalye/porcupine"
)

// op is an operation of a made-up history.
func op(from, to int64, what, uuid string, token int64, maybe ...bool) porcupine.Operation {
	return porcupine.Operation{Call: from, Return: to, Input: step{what: what, uuid: uuid, token: token, part: 1,
		maybe: len(maybe) > 0}}
}

// takes is an operation that takes this many parts of a lock.
func takes(from, to int64, part int, uuid string, token int64) porcupine.Operation {
	return porcupine.Operation{Call: from, Return: to, Input: step{what: stepTake, uuid: uuid, token: token,
		part: part}}
}

func TestHistoriesThatALockCanHave(t *testing.T) {
	for name, history := range map[string][]porcupine.Operation{
		"one after the other": {op(1, 2, stepTake, "a", 1), op(3, 4, stepEnd, "a", 1), op(5, 6, stepTake, "b", 5)},
		"at the same time":    {op(1, 9, stepTake, "a", 1), op(1, 9, stepTake, "b", 5), op(2, 8, stepEnd, "a", 1)},
		"refused meanwhile": {op(1, 2, stepTake, "a", 1), op(1, 4, stepRefused, "a", 1),
			op(1, 4, stepRefused, "", 0)},
		"an answer that did not come, and was done": {
			op(1, never, stepTake, "a", 1, true), op(2, 9, stepEnd, "a", 1), op(7, 8, stepTake, "b", 5),
		},
		"an answer that did not come, and was not done": {op(1, never, stepTake, "a", 1, true),
			op(2, 3, stepTake, "b", 5), op(4, 5, stepAlive, "b", 5)},
		"done long after nobody waited any more": {
			op(1, never, stepTake, "a", 3, true), op(2, 3, stepTake, "b", 2), op(4, 5, stepEnd, "b", 2),
			op(6, 7, stepRefused, "a", 3),
		},
		"lost, and learned late": {op(1, 2, stepTake, "a", 1), op(1, 5, stepEnd, "a", 1), op(6, 7, stepTake, "b", 5),
			op(8, 9, stepLost, "a", 1)},
	} {
		if !porcupine.CheckOperations(lockModel(1), history) {
			t.Errorf("%s: refused", name)
		}
	}
}

func TestHistoriesThatNoLockCanHave(t *testing.T) {
	for name, history := range map[string][]porcupine.Operation{
		"two holders":       {op(1, 2, stepTake, "a", 1), op(3, 4, stepTake, "b", 5)},
		"a smaller token":   {op(1, 2, stepTake, "a", 5), op(3, 4, stepEnd, "a", 5), op(5, 6, stepTake, "b", 1)},
		"refused by nobody": {op(1, 2, stepRefused, "a", 1), op(3, 4, stepTake, "a", 1)},
		"alive after another took it": {
			op(1, 2, stepTake, "a", 1), op(3, 4, stepEnd, "a", 1), op(5, 6, stepTake, "b", 5),
			op(7, 8, stepAlive, "a", 1),
		},
		"lost while held":   {op(1, 2, stepTake, "a", 1), op(3, 4, stepLost, "a", 1), op(5, 6, stepAlive, "a", 1)},
		"ended twice":       {op(1, 2, stepTake, "a", 1), op(3, 4, stepEnd, "a", 1), op(5, 6, stepEnd, "a", 1)},
		"done before asked": {op(5, never, stepTake, "a", 1, true), op(1, 2, stepEnd, "a", 1)},
	} {
		if porcupine.CheckOperations(lockModel(1), history) {
			t.Errorf("%s: taken for that of a lock", name)
		}
	}
}

func TestHistoriesOfASemaphore(t *testing.T) {
	for name, one := range map[string]struct {
		fits bool
		of   []porcupine.Operation
	}{
		"as many as there are": {true, []porcupine.Operation{takes(1, 2, 3, "a", 1), takes(3, 4, 1, "b", 5),
			op(5, 6, stepRefused, "b", 5)}},
		"one more, when one was back": {true, []porcupine.Operation{takes(1, 2, 3, "a", 1), takes(3, 9, 2, "b", 5),
			op(5, 6, stepEnd, "a", 1)}},
		"one more than there are": {false, []porcupine.Operation{takes(1, 2, 3, "a", 1), takes(3, 4, 2, "b", 5),
			op(5, 6, stepEnd, "a", 1)}},
		"refused by who has nothing": {false, []porcupine.Operation{takes(1, 2, 3, "a", 1),
			op(3, 4, stepRefused, "b", 5), takes(5, 6, 1, "b", 5)}},
		"refused by nobody while held": {false, []porcupine.Operation{takes(1, 2, 1, "a", 1),
			op(3, 4, stepRefused, "", 0)}},
		"beside who has all": {false, []porcupine.Operation{takes(1, 2, 4, "a", 1),
			takes(3, 4, 1, "b", 5)}},
		"given back by another's return": {false, []porcupine.Operation{takes(1, 2, 1, "a", 1), takes(3, 4, 3, "b", 5),
			op(5, 6, stepEnd, "a", 1), takes(7, 8, 2, "c", 9)}},
	} {
		if porcupine.CheckOperations(lockModel(4), one.of) != one.fits {
			t.Errorf("%s: wanted %v", name, one.fits)
		}
	}
}

// put is a transaction of a made-up history of etcd.
func put(revision int64, pairs ...string) (all []change) {
	for pair := range slices.Chunk(pairs, 2) {
		all = append(all, change{revision: revision, at: revision, created: revision, lease: true,
			key: prefix + pair[0], value: pair[1], deleted: pair[1] == ""})
	}
	return all
}

func TestWhatEtcdMustNotHaveDone(t *testing.T) {
	const a, b = "00000000-0000-4000-8000-00000000000a", "00000000-0000-4000-8000-00000000000b"
	held := put(1, "x/uuid", a, "x/auto_unlock_at", "1700000010")
	for rule, history := range map[string][][]change{
		ruleOneRecord: {held, put(2, "x/uuid", b, "x/auto_unlock_at", "1700000020")},
		ruleDeadline:  {held, put(2, "x/auto_unlock_at", "1700000009")},
		ruleKeys:      {put(1, "x/auto_unlock_at", "1700000010")},
		ruleCancelled: {put(1, ".cancelled/"+a, "x"), put(2, "x/uuid", a, "x/auto_unlock_at", "1700000010")},
		ruleTicket:    {put(1, "x/uuid", a, "x/auto_unlock_at", "1700000010", ".queue/x/"+a, "{}")},
		ruleQueue: {put(1, ".queue/x/"+b, "{}", ".queue/x/.tail", b),
			put(2, "x/uuid", a, "x/auto_unlock_at", "1700000010")},
		rulePermits: {
			put(1, "book/uuid", a, "book/auto_unlock_at", "1700000010", "book/metadata", `{"kind":"exclusive"}`),
			put(2, "book#1/uuid", b, "book#1/auto_unlock_at", "1700000010", "book#1/metadata", `{"kind":"shared"}`),
		},
		ruleGuard: {held, {{revision: 2, key: resourcePrefix + "x", value: "7"}}},
		ruleTogether: {
			put(1, "x/uuid", a, "x/auto_unlock_at", "1700000010", "x/metadata",
				`{"op":"c-1","way":"try all","names":2}`),
		},
		ruleCount: {held, {{revision: 2, key: countPrefix + "x", value: "c-1 0"}}},
		rulePeriod: {
			put(1, "x/uuid", a, "x/auto_unlock_at", "1700000010", "x/metadata",
				`{"way":"once","period":"2023-11-14T22:13:20Z"}`, ".periods/x", "1700000000 by a"),
			put(2, "x/uuid", "", "x/auto_unlock_at", "", "x/metadata", ""),
			put(3, "x/uuid", b, "x/auto_unlock_at", "1700000010", "x/metadata",
				`{"way":"once","period":"2023-11-14T22:13:20Z"}`, ".periods/x", "1700000000 by b"),
		},
		ruleTask: {
			put(1, ".tasks/x/y", `{"state":"new"}`),
			put(2, "x%2Fy/uuid", a, "x%2Fy/auto_unlock_at", "1700000010", "x%2Fy/metadata", `{"op":"c-1"}`,
				".tasks/x/y", `{"state":"in_progress","by":"c"}`),
			put(3, "x%2Fy/uuid", "", "x%2Fy/auto_unlock_at", "", "x%2Fy/metadata", ""),
			put(4, ".tasks/x/y", `{"state":"done","by":"c"}`),
		},
		ruleLeft: {{{revision: 1, key: prefix + ".cancelled/" + a, value: "x"}}},
	} {
		var found []string
		g := newLedger(func(rule, format string, args ...any) {
			found = append(found, violation{rule, fmt.Sprintf(format, args...)}.String())
		})
		for _, txn := range history {
			g.read(txn)
		}
		if len(found) != 1 || !strings.HasPrefix(found[0], rule) {
			t.Errorf("%s: found %q", rule, found)
		}
	}
}

func TestWhatEtcdMayHaveDone(t *testing.T) {
	const a, b = "00000000-0000-4000-8000-00000000000a", "00000000-0000-4000-8000-00000000000b"
	g := newLedger(func(rule, format string, args ...any) { t.Errorf(rule+": "+format, args...) })
	for _, txn := range [][]change{
		put(1, "x/uuid", a, "x/auto_unlock_at", "1700000010"),
		put(2, ".queue/x/"+b, "{}", ".queue/x/.tail", b),
		put(3, "x/auto_unlock_at", "1700000020", "x/alive", "1700000001 at work for "+a),
		put(4, "x/uuid", "", "x/auto_unlock_at", "", "x/alive", ""),
		put(5, "x/uuid", b, "x/auto_unlock_at", "1700000030", ".queue/x/"+b, `{"holding":true}`),
		put(6, "x/uuid", "", "x/auto_unlock_at", "", ".queue/x/"+b, "", ".queue/x/.tail", ""),
		put(7, "j/uuid", a, "j/auto_unlock_at", "1700000010", "j/metadata",
			`{"way":"once","period":"2023-11-14T22:13:20Z"}`, ".periods/j", "1700000000 by a"),
		put(8, "j/uuid", "", "j/auto_unlock_at", "", "j/metadata", "", ".periods/j", ""),
		put(9, ".tasks/s/t", `{"state":"new"}`),
		put(10, "s%2Ft/uuid", a, "s%2Ft/auto_unlock_at", "1700000010", "s%2Ft/metadata", `{"op":"c-1"}`, ".tasks/s/t",
			`{"state":"in_progress","by":"c"}`),
		put(11, "s%2Ft/uuid", "", "s%2Ft/auto_unlock_at", "", "s%2Ft/metadata", "", ".tasks/s/t", ""),
	} {
		g.read(txn)
	}
	if len(g.holds) != 4 || g.holds[0].ended != 4 || g.holds[1].token != 5 || len(g.holds[0].writes) != 2 {
		t.Errorf("holds %v", g.holds)
	}
}

func TestWhatNoWitnessMayState(t *testing.T) {
	const a, b = "00000000-0000-4000-8000-00000000000a", "00000000-0000-4000-8000-00000000000b"
	held := put(1, "x/uuid", a, "x/auto_unlock_at", "1700000010")
	death := func(revision int64, token int, by string) []change {
		return put(revision, ".deaths/"+a, fmt.Sprintf(
			`{"lock":"x","uuid":%q,"token":%d,"cause":"process_ended","by":%q}`, a, token, by))
	}
	removed := func(revision int64, more ...string) []change {
		return put(revision, append(more, "x/uuid", "", "x/auto_unlock_at", "", ".history/"+a,
			fmt.Sprintf(`{"lock":"x","uuid":%q,"token":1,"ended":"abandoned"}`, a))...)
	}
	for name, one := range map[string]struct {
		wrong int
		of    [][]change
	}{
		"a dead holder": {0, [][]change{held, death(2, 1, "w"), removed(4)}},
		"alive before it": {0, [][]change{held, put(2, "x/alive", "1700000001"), death(3, 1, "w"),
			removed(4, "x/alive", "")}},
		"nobody said so":   {1, [][]change{held, removed(4)}},
		"of another token": {1, [][]change{held, death(2, 7, stranger), removed(4)}},
		"taken back":       {1, [][]change{held, death(2, 1, "w"), put(3, ".deaths/"+a, ""), removed(4)}},
		"disputed": {1, [][]change{held, death(2, 1, "w"), put(3, "x/alive", "1700000001"),
			removed(4, "x/alive", "")}},
		"extended without alive": {1, [][]change{held, death(2, 1, "w"), put(3, "x/auto_unlock_at", "1700000020"),
			removed(4)}},
		"detached": {1, [][]change{held, death(2, 1, "w"), put(3, "x/detached", "true"),
			removed(4, "x/detached", "")}},
		"stated of a detached hold": {1, [][]change{held, put(2, "x/detached", "true"), death(3, 1, "w")}},
		"stated of a former hold": {1, [][]change{put(1, "x/uuid", b, "x/auto_unlock_at", "1700000010"),
			death(2, 1, "w")}},
	} {
		var found []string
		g := newLedger(func(rule, format string, args ...any) {
			found = append(found, violation{rule, fmt.Sprintf(format, args...)}.String())
		})
		for _, txn := range one.of {
			g.read(txn)
		}
		if len(found) != one.wrong || one.wrong > 0 && !strings.HasPrefix(found[0], ruleDead) {
			t.Errorf("%s: found %q", name, found)
		}
	}
}
