package robustness

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/clustermutex/unlocker/pkg/metadata"
)

// judgement is everything that is known when a run is over.
type judgement struct {
	*stage
	*ledger
	found func(rule, format string, args ...any)
	told  []*told
	wall  int64 // what to add to a stamp to get nanoseconds of the wall clock

	processes map[string]*child
	unlocks   map[holdID][]*question
	toldOf    map[holdID]bool // clients were told that they have them
	logs      []logLine
	braked    bool // there was so much to remove that an unlocker did it slowly
}

// logLine is a line that an unlocker wrote about a removal.
type logLine struct {
	Process              string
	UUID, Result, Reason string
	Token                int64
}

// clock is the wall clock at a stamp.
func (j *judgement) clock(at int64) time.Time { return time.Unix(0, at+j.wall) }

// judge reads all records of the run and finds violations.
func (s *stage) judge(found func(rule, format string, args ...any), r *report) {
	j := &judgement{
		stage: s, ledger: newLedger(found), found: found, wall: time.Now().UnixNano() - stamp(),
		processes: map[string]*child{},
		unlocks:   map[holdID][]*question{}, toldOf: map[holdID]bool{},
	}
	ctx, cancel := timeout(20 * time.Second)
	defer cancel()
	if err := s.recorder.catchUp(ctx); err != nil {
		found(ruleRun, "%v", err)
	}
	changes, err := s.recorder.all()
	if err != nil {
		found(ruleRun, "%v", err)
	}
	j.readClients()
	j.readLogs()
	j.ledger.read(changes)
	for _, h := range j.holds {
		h.wiped = j.wipedBy(h)
	}
	r.Ops, r.Unknown, r.Check = checkLinearizable(j.told, j.holds, found)
	j.answers()
	j.removals()
	j.late()
	j.dead()
	j.beliefs()
	j.keepersLive()
	s.resource.check(j.holds, found)
	j.count(r, len(changes))
}

func (j *judgement) readClients() {
	for _, p := range slices.Concat(j.former, j.clients) {
		j.processes[p.name] = p
		file := j.notes[p]
		if file == "" {
			continue
		}
		t, err := readNotes(p.name, file)
		if err != nil {
			if !os.IsNotExist(err) { // killed before its first question
				j.found(ruleRun, "%v", err)
			}
			continue
		}
		j.told = append(j.told, t)
		for _, q := range t.questions {
			if q.Op == opUnlock {
				j.unlocks[q.of()] = append(j.unlocks[q.of()], q)
			}
			if acquires(q.Op) && q.answer.Said == okay {
				j.toldOf[q.answer.of()] = true
			}
		}
		for _, text := range t.wrong {
			j.found(ruleAnswer, "%s: %s", p.name, text)
		}
		if t.bye != nil && t.bye.Err != "" {
			j.found(ruleLeft, "goroutines of %s: %s", p.name, t.bye.Err)
		}
	}
}

func (j *judgement) readLogs() {
	for _, p := range slices.Concat(j.former, j.stage.unlockers) {
		j.processes[p.name] = p
		if !strings.HasPrefix(p.name, "unlocker") {
			continue
		}
		f, err := os.Open(p.log)
		if err != nil {
			j.found(ruleRun, "%v", err)
			continue
		}
		scanner := bufio.NewScanner(f)
		scanner.Buffer(nil, 1<<20)
		for scanner.Scan() {
			l := logLine{Process: p.name}
			if json.Unmarshal(scanner.Bytes(), &l) == nil && l.Result != "" {
				j.logs = append(j.logs, l)
			}
			j.braked = j.braked || strings.Contains(scanner.Text(), `"on":true`)
			if strings.Contains(scanner.Text(), "panic:") || strings.Contains(scanner.Text(), "DATA RACE") {
				j.found(ruleRun, "%s: %s", p.name, scanner.Text())
			}
		}
		f.Close()
	}
}

// answers checks that etcd's history has every hold that a client was granted.
func (j *judgement) answers() {
	known := map[holdID]*hold{}
	for _, h := range j.holds {
		known[h.id()] = h
	}
	for _, t := range j.told {
		for _, q := range t.questions {
			if !acquires(q.Op) || q.answer.Said != okay {
				continue
			}
			h := known[q.answer.of()]
			if h == nil || h.lock != q.answer.Record || h.question != q.ID {
				j.found(ruleAnswer, "%s was told that it holds %q as %s with token %d; etcd knows %v", q.ID, q.Lock,
					q.answer.UUID, q.answer.Token, h)
			}
		}
	}
}

// removals checks that every end of a hold had somebody who may end it, in time, and one entry and one line about it.
func (j *judgement) removals() {
	lines := map[holdID][]logLine{}
	for _, l := range j.logs {
		lines[holdID{l.UUID, l.Token}] = append(lines[holdID{l.UUID, l.Token}], l)
	}
	for _, h := range j.holds {
		switch {
		case h.gone == 0, h.goneBy == "overwritten":
		case h.ending != nil && h.ending.Ended == metadata.EndedForced:
			j.oneEntry(h)
		case h.ending != nil:
			j.oneEntry(h)
			j.oneLine(h, lines[h.id()])
			if h.ending.Ended != metadata.EndedAbandoned {
				j.early(h)
			}
		case !h.cancelled:
			j.released(h)
		}
		if h.ending == nil && slices.ContainsFunc(lines[h.id()],
			func(l logLine) bool { return l.Result == "success" }) {
			j.found(ruleLog, "an unlocker says that it removed %v, which was %s", h, h.goneBy)
		}
	}
}

func (j *judgement) oneEntry(h *hold) {
	if n := j.endings[h.id()]; n != 1 {
		j.found(ruleHistory, "%v has %d entries", h, n)
	}
}

// oneLine expects one line of success. An unlocker that was killed had no time for it, and one that got no answer says
// that it does not know.
func (j *judgement) oneLine(h *hold, lines []logLine) {
	said := 0
	doubt := false
	for _, l := range lines {
		if l.Result == "success" {
			said++
		}
		doubt = doubt || strings.Contains(l.Reason, "outcome unknown")
	}
	excused := doubt
	for _, p := range j.former {
		excused = excused || p.killed != 0 && p.killed < h.gone+int64(10*time.Second) &&
			p.killed > h.gone-int64(10*time.Second)
	}
	if said > 1 || said == 0 && !excused {
		j.found(ruleLog, "the removal of %v has %d lines", h, said)
	}
}

// early checks an auto-unlock against the rules of docs/time.md that can be checked from outside.
func (j *judgement) early(h *hold) {
	at, gone := h.ending.EndedAt.Time, j.clock(h.gone)
	if at.After(gone.Add(time.Second)) || at.Before(gone.Add(-30*time.Second)) {
		j.found(ruleEarly, "%v was removed at %v by an unlocker whose clock said %v", h, gone, at)
	}
	if due := h.deadline().Add(skew); at.Before(due) {
		j.found(ruleEarly, "%v was removed at %v, it was due at %v", h, at, due)
	}
	// The warning begins anew when the holder extends. The time in the record is the holder's and may be off by the
	// skew; it was written before the extension was sent.
	if last := h.writes[len(h.writes)-1].alive; at.Before(last.Add(warning-skew)) &&
		!strings.Contains(h.lock, "slow clock") {
		j.found(ruleEarly, "%v was removed at %v, its holder extended it at %v", h, at, last)
	}
	for _, f := range j.faults {
		end := j.clock(f.to)
		outage := f.name == "etcd: all members stand still" || j.Nodes == 1 && f.name == "etcd: member stands still"
		if outage && f.to-f.from > int64(6*time.Second) && at.After(j.clock(f.from).Add(6*time.Second)) &&
			at.Before(end.Add(warning-5*time.Second)) {
			j.found(ruleEarly, "%v was removed at %v, within the warning after the outage that ended at %v", h, at, end)
		}
	}
	for name, p := range j.processes {
		began := j.clock(p.began)
		if strings.HasPrefix(name, "unlocker") && strings.Contains(h.ending.By, name) && at.Before(began.Add(warning)) {
			j.found(ruleEarly, "%v was removed at %v by %s, which began at %v", h, at, name, began)
		}
	}
}

// released checks that a hold that ended without a note was released by its holder.
func (j *judgement) released(h *hold) {
	for _, q := range j.unlocks[h.id()] {
		if q.At <= h.gone {
			return
		}
	}
	if j.wipedBy(h) {
		return
	}
	if (h.way == opAll || h.way == opTryAll) && !j.toldOf[h.id()] {
		return // given back because another one of several was not to be had
	}
	if h.way == byHand || strings.HasPrefix(h.lock, "keeper/") {
		return
	}
	full := slices.ContainsFunc(j.faults, func(f faultDone) bool {
		return f.name == "etcd: out of space" &&
			f.from < h.gone
	})
	if full && !j.toldOf[h.id()] {
		return // an attempt that was given up, taken back without a mark for want of space
	}
	if full && strings.Contains(j.forced.String(), h.uuid) {
		return // forced, without a note for want of space
	}
	j.found(ruleRemoval, "%v ended at revision %d, %s after the beginning; its holder did not give it back", h, h.ended,
		seconds(h.gone, j.began))
}

// wipedBy reports whether somebody deleted the lock by hand while the hold was there.
func (j *judgement) wipedBy(h *hold) bool {
	return slices.ContainsFunc(j.wiped, func(w wipe) bool {
		return w.lock == h.lock && h.gone != 0 && w.from < h.gone && h.gone < w.from+int64(5*time.Second)
	})
}

// late expects every lock of a dead holder to be gone in time: docs/time.md tells by when. What disturbed an unlocker
// gives it reason to wait; the bound begins anew after the last disturbance.
func (j *judgement) late() {
	// a connection that was begun in a silent network fails after 5 s, and is tried again after 3
	const reconnect = 10 * time.Second
	slack := 4 * time.Second // of a machine with two busy cores
	if j.braked {
		slack += time.Minute // one removal a second
	}
	for _, h := range j.holds {
		if h.ending == nil || h.ending.Ended != metadata.EndedAutoUnlocked {
			continue
		}
		bound := h.deadline().Add(2*skew + time.Second)
		if warned := j.clock(h.writes[len(h.writes)-1].at).Add(warning + skew + time.Second); warned.After(bound) {
			bound = warned
		}
		for _, f := range j.faults {
			if calm := j.clock(f.to).Add(warning + reconnect); f.sweep && f.from < h.gone && calm.After(bound) {
				bound = calm
			}
		}
		if gone := j.clock(h.gone); gone.After(bound.Add(slack)) {
			j.found(ruleLate, "%v was gone at %v, by the rules it should have been by %v", h, gone, bound)
		}
	}
}

// beliefs checks that two clients never worked as the holder at the same time. A process that stands still cannot know
// better, and a hold that a person forces ends under its holder: for these there is the fence.
func (j *judgement) beliefs() {
	forced := map[holdID]bool{}
	for _, h := range j.holds {
		forced[h.id()] = j.wipedBy(h) || h.ending != nil && h.ending.Ended == metadata.EndedForced ||
			strings.Contains(j.forced.String(), h.uuid)
	}
	var all []belief
	for _, t := range j.told {
		for _, b := range t.beliefs() {
			if !forced[holdID{b.uuid, b.token}] && !j.stood(b) {
				all = append(all, b)
			}
		}
	}
	slices.SortFunc(all, func(a, b belief) int { return cmp.Compare(a.from, b.from) })
	active := map[string][]belief{}
	for _, b := range all {
		still := slices.DeleteFunc(active[b.lock], func(o belief) bool { return o.to <= b.from })
		parts := b.part
		for _, o := range still {
			parts += o.part
		}
		if parts > whole(b.lock) {
			j.found(ruleBelief, "%q: %s (token %d) from %s on, beside %s", b.lock, b.uuid, b.token,
				seconds(b.from, j.began), describe(still, j.began))
		}
		active[b.lock] = append(still, b)
	}
}

func describe(all []belief, began int64) (text string) {
	for _, b := range all {
		text += fmt.Sprintf("%s (token %d) from %s to %s; ", b.uuid, b.token, seconds(b.from, began),
			seconds(b.to, began))
	}
	return text
}

func (j *judgement) stood(b belief) bool {
	p := j.processes[b.process]
	return p != nil && p.pausedIn(b.from, b.to+int64(time.Second))
}

// keepersLive checks that nobody ended the hold of a live holder.
func (j *judgement) keepersLive() {
	for _, err := range j.keepers.problems {
		j.found(ruleKeeper, "%v", err)
	}
	for _, h := range j.holds {
		if j.keepers.live[h.uuid] != "" && h.ending != nil {
			j.found(ruleKeeper, "%v was %s by %s: %s", h, h.ending.Ended, h.ending.By, h.ending.Why)
		}
	}
}
