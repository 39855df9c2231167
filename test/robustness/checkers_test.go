package robustness

import (
	"fmt"
	"slices"
	"testing"

	"github.com/anishathalye/porcupine"
)

func op(from, to int64, what, uuid string, token int64, maybe ...bool) porcupine.Operation {
	return porcupine.Operation{Call: from, Return: to, Input: step{what: what, uuid: uuid, token: token, part: 1,
		maybe: len(maybe) > 0}}
}

func takes(from, to int64, part int, uuid string, token int64) porcupine.Operation {
	return porcupine.Operation{Call: from, Return: to, Input: step{what: stepTake, uuid: uuid, token: token,
		part: part}}
}

// histories are made up: of a lock with so many parts, some of which it can have.
func TestLegalAndIllegalHistories(t *testing.T) {
	type operations = []porcupine.Operation
	for _, these := range []struct {
		parts     int
		fits      bool
		histories map[string]operations
	}{
		{1, true, map[string]operations{
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
			"lost, and learned late": {op(1, 2, stepTake, "a", 1), op(1, 5, stepEnd, "a", 1),
				op(6, 7, stepTake, "b", 5), op(8, 9, stepLost, "a", 1)},
		}},
		{1, false, map[string]operations{
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
		}},
		{4, true, map[string]operations{
			"as many as there are": {takes(1, 2, 3, "a", 1), takes(3, 4, 1, "b", 5),
				op(5, 6, stepRefused, "b", 5)},
			"one more, when one was back": {takes(1, 2, 3, "a", 1), takes(3, 9, 2, "b", 5),
				op(5, 6, stepEnd, "a", 1)},
		}},
		{4, false, map[string]operations{
			"one more than there are": {takes(1, 2, 3, "a", 1), takes(3, 4, 2, "b", 5),
				op(5, 6, stepEnd, "a", 1)},
			"refused by who has nothing": {takes(1, 2, 3, "a", 1),
				op(3, 4, stepRefused, "b", 5), takes(5, 6, 1, "b", 5)},
			"refused by nobody while held": {takes(1, 2, 1, "a", 1),
				op(3, 4, stepRefused, "", 0)},
			"beside who has all": {takes(1, 2, 4, "a", 1),
				takes(3, 4, 1, "b", 5)},
			"given back by another's return": {takes(1, 2, 1, "a", 1), takes(3, 4, 3, "b", 5),
				op(5, 6, stepEnd, "a", 1), takes(7, 8, 2, "c", 9)},
		}},
	} {
		for name, history := range these.histories {
			if porcupine.CheckOperations(lockModel(these.parts), history) != these.fits {
				t.Errorf("%s: wanted %v", name, these.fits)
			}
		}
	}
}

func put(revision int64, pairs ...string) (all []change) {
	for pair := range slices.Chunk(pairs, 2) {
		all = append(all, change{revision: revision, at: revision, created: revision, lease: true,
			key: prefix + pair[0], value: pair[1], deleted: pair[1] == ""})
	}
	return all
}

// took is a transaction that takes a lock, and left one that leaves nothing of its record.
func took(revision int64, lock, uuid, metadata string, more ...string) []change {
	return put(revision, append(more, lock+"/uuid", uuid, lock+"/auto_unlock_at", "1700000010",
		lock+"/metadata", metadata)...)
}

func left(revision int64, lock string, more ...string) []change {
	return put(revision, append(more, lock+"/uuid", "", lock+"/auto_unlock_at", "", lock+"/metadata", "",
		lock+"/alive", "", lock+"/detached", "")...)
}

func judged(history ...[]change) (g *ledger, found []violation) {
	g = newLedger(collect(&found))
	for _, txn := range history {
		g.read(txn)
	}
	return g, found
}

func TestIllegalEtcdHistories(t *testing.T) {
	const a, b = "00000000-0000-4000-8000-00000000000a", "00000000-0000-4000-8000-00000000000b"
	const once = `{"way":"once","period":"2023-11-14T22:13:20Z"}`
	held := took(1, "x", a, "{}")
	for rule, history := range map[string][][]change{
		ruleOneRecord: {held, took(2, "x", b, "{}")},
		ruleDeadline:  {held, put(2, "x/auto_unlock_at", "1700000009")},
		ruleKeys:      {put(1, "x/auto_unlock_at", "1700000010")},
		ruleCancelled: {put(1, ".cancelled/"+a, "x"), took(2, "x", a, "{}")},
		ruleTicket:    {took(1, "x", a, "{}", ".queue/x/"+a, "{}")},
		ruleQueue:     {put(1, ".queue/x/"+b, "{}", ".queue/x/.tail", b), took(2, "x", a, "{}")},
		rulePermits:   {took(1, "book", a, `{"kind":"exclusive"}`), took(2, "book#1", b, `{"kind":"shared"}`)},
		ruleGuard:     {held, {{revision: 2, key: resourcePrefix + "x", value: "7"}}},
		ruleTogether:  {took(1, "x", a, `{"op":"c-1","way":"try all","names":2}`)},
		ruleCount:     {held, {{revision: 2, key: countPrefix + "x", value: "c-1 0"}}},
		rulePeriod: {took(1, "x", a, once, ".periods/x", "1700000000 by a"), left(2, "x"),
			took(3, "x", b, once, ".periods/x", "1700000000 by b")},
		ruleTask: {
			put(1, ".tasks/x/y", `{"state":"new"}`),
			took(2, "x%2Fy", a, `{"op":"c-1"}`, ".tasks/x/y", `{"state":"in_progress","by":"c"}`),
			left(3, "x%2Fy"),
			put(4, ".tasks/x/y", `{"state":"done","by":"c"}`),
		},
		ruleLeft: {{{revision: 1, key: prefix + ".cancelled/" + a, value: "x"}}},
	} {
		if _, found := judged(history...); len(found) != 1 || found[0].Rule != rule {
			t.Errorf("%s: found %q", rule, found)
		}
	}
}

func TestLegalEtcdHistories(t *testing.T) {
	const a, b = "00000000-0000-4000-8000-00000000000a", "00000000-0000-4000-8000-00000000000b"
	g, found := judged(
		took(1, "x", a, "{}"),
		put(2, ".queue/x/"+b, "{}", ".queue/x/.tail", b),
		put(3, "x/auto_unlock_at", "1700000020", "x/alive", "1700000001 at work for "+a),
		left(4, "x"),
		took(5, "x", b, "{}", ".queue/x/"+b, `{"holding":true}`),
		left(6, "x", ".queue/x/"+b, "", ".queue/x/.tail", ""),
		took(7, "j", a, `{"way":"once","period":"2023-11-14T22:13:20Z"}`, ".periods/j", "1700000000 by a"),
		put(8, ".periods/j", ""),
		left(9, "j"),
		put(10, ".tasks/s/t", `{"state":"new"}`),
		took(11, "s%2Ft", a, `{"op":"c-1"}`, ".tasks/s/t", `{"state":"in_progress","by":"c"}`),
		left(12, "s%2Ft", ".tasks/s/t", ""),
	)
	if len(found) > 0 || len(g.holds) != 4 || g.holds[0].ended != 4 || g.holds[1].token != 5 ||
		len(g.holds[0].writes) != 2 {
		t.Errorf("holds %v, found %v", g.holds, found)
	}
}

func TestIllegalStatements(t *testing.T) {
	const a, b = "00000000-0000-4000-8000-00000000000a", "00000000-0000-4000-8000-00000000000b"
	held := took(1, "x", a, "{}")
	death := func(revision int64, token int, by string) []change {
		return put(revision, ".deaths/"+a, fmt.Sprintf(
			`{"lock":"x","uuid":%q,"token":%d,"cause":"process_ended","by":%q}`, a, token, by))
	}
	removed := left(4, "x", ".history/"+a, fmt.Sprintf(`{"lock":"x","uuid":%q,"token":1,"ended":"abandoned"}`, a))
	alive := "1700000001"
	for name, one := range map[string]struct {
		wrong int
		of    [][]change
	}{
		"a dead holder":    {0, [][]change{held, death(2, 1, "w"), removed}},
		"alive before it":  {0, [][]change{held, put(2, "x/alive", alive), death(3, 1, "w"), removed}},
		"nobody said so":   {1, [][]change{held, removed}},
		"of another token": {1, [][]change{held, death(2, 7, stranger), removed}},
		"taken back":       {1, [][]change{held, death(2, 1, "w"), put(3, ".deaths/"+a, ""), removed}},
		"disputed":         {1, [][]change{held, death(2, 1, "w"), put(3, "x/alive", alive), removed}},
		"extended without alive": {1, [][]change{held, death(2, 1, "w"), put(3, "x/auto_unlock_at", "1700000020"),
			removed}},
		"detached":                  {1, [][]change{held, death(2, 1, "w"), put(3, "x/detached", "true"), removed}},
		"stated of a detached hold": {1, [][]change{held, put(2, "x/detached", "true"), death(3, 1, "w")}},
		"stated of a former hold":   {1, [][]change{took(1, "x", b, "{}"), death(2, 1, "w")}},
	} {
		if _, found := judged(one.of...); len(found) != one.wrong || one.wrong > 0 && found[0].Rule != ruleDead {
			t.Errorf("%s: found %q", name, found)
		}
	}
}
