package robustness

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/clustermutex/unlocker/pkg/metadata"
)

type judgement struct {
	*stage
	*ledger
	found finder
	told  []*told
	known map[holdID]*hold
	wall  int64 // what to add to a stamp to get nanoseconds of the wall clock

	processes map[string]*child
	unlocks   map[holdID][]*question
	toldOf    map[holdID]bool // clients were told that they have them
	logs      map[holdID][]logLine
	braked    bool // there was so much to remove that an unlocker did it slowly
}

type logLine struct {
	UUID, Result, Reason string
	Token                int64
}

func (j *judgement) clock(at int64) time.Time { return time.Unix(0, at+j.wall) }

func (s *stage) judge() {
	j := &judgement{
		stage: s, ledger: newLedger(s.found), found: s.found, wall: time.Now().UnixNano() - stamp(),
		known: map[holdID]*hold{}, logs: map[holdID][]logLine{}, processes: map[string]*child{},
		unlocks: map[holdID][]*question{}, toldOf: map[holdID]bool{},
	}
	ctx, cancel := timeout(20 * time.Second)
	defer cancel()
	if err := s.recorder.catchUp(ctx); err != nil {
		s.found(ruleRun, "%v", err)
	}
	changes, err := s.recorder.all()
	if err != nil {
		s.found(ruleRun, "%v", err)
	}
	j.readClients()
	j.readLogs()
	j.ledger.read(changes)
	for _, h := range j.holds {
		h.wiped = slices.ContainsFunc(j.wiped, func(w wipe) bool {
			return w.lock == h.lock && h.gone != 0 && w.from < h.gone && h.gone < w.from+int64(5*time.Second)
		})
		j.known[h.id()] = h
	}
	j.linearizable()
	j.answers()
	j.removals()
	j.late()
	j.dead()
	j.beliefs()
	j.keepersLive()
	j.fence()
	for _, h := range j.holds {
		j.stage.counts["holds: "+cmp.Or(h.goneBy, "left")]++
	}
	s.counts["deaths stated"] = len(j.statements)
}

func (j *judgement) readClients() {
	for _, p := range slices.Concat(j.former, j.clients) {
		j.processes[p.name] = p
		file := p.notes
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
			if q.got() {
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
		text, err := os.ReadFile(p.log)
		if err != nil {
			j.found(ruleRun, "%v", err)
		}
		for line := range strings.Lines(string(text)) {
			l := logLine{}
			if json.Unmarshal([]byte(line), &l) == nil && l.Result != "" {
				j.logs[holdID{l.UUID, l.Token}] = append(j.logs[holdID{l.UUID, l.Token}], l)
			}
			j.braked = j.braked || strings.Contains(line, `"on":true`)
			if strings.Contains(line, "panic:") || strings.Contains(line, "DATA RACE") {
				j.found(ruleRun, "%s: %s", p.name, line)
			}
		}
	}
}

func (j *judgement) answers() {
	for _, t := range j.told {
		for _, q := range t.questions {
			if !q.got() {
				continue
			}
			h := j.known[q.answer.of()]
			if h == nil || h.lock != q.answer.Record || h.Op != q.ID {
				j.found(ruleAnswer, "%s was told that it holds %q as %s with token %d; etcd knows %v", q.ID, q.Lock,
					q.answer.UUID, q.answer.Token, h)
			}
		}
	}
}

// removals checks that every end of a hold had somebody who may end it, in time, and one entry and one line about it.
func (j *judgement) removals() {
	for _, h := range j.holds {
		switch {
		case h.gone == 0, h.goneBy == "overwritten":
		case h.ending != nil && h.ending.Cause == metadata.EndingForced:
			j.oneEntry(h)
		case h.ending != nil:
			j.oneEntry(h)
			j.oneLine(h)
			if h.ending.Cause != metadata.EndingAbandoned {
				j.early(h)
			}
		case h.goneBy != "cancelled":
			j.released(h)
		}
		if said, _ := j.said(h); h.ending == nil && said > 0 {
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
func (j *judgement) oneLine(h *hold) {
	said, excused := j.said(h)
	for _, p := range j.former {
		excused = excused || p.killed != 0 && p.killed < h.gone+int64(10*time.Second) &&
			p.killed > h.gone-int64(10*time.Second)
	}
	if said > 1 || said == 0 && !excused {
		j.found(ruleLog, "the removal of %v has %d lines", h, said)
	}
}

// said is how many lines say that a hold was removed, and whether one says that this is not known.
func (j *judgement) said(h *hold) (success int, doubt bool) {
	for _, l := range j.logs[h.id()] {
		if l.Result == "success" {
			success++
		}
		doubt = doubt || strings.Contains(l.Reason, "outcome unknown")
	}
	return success, doubt
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
	if h.wiped {
		return
	}
	if (h.Way == opAll || h.Way == opTryAll) && !j.toldOf[h.id()] {
		return // given back because another one of several was not to be had
	}
	if h.Way == byHand || strings.HasPrefix(h.lock, "keeper/") {
		return
	}
	full := slices.ContainsFunc(j.faults, func(f *faultDone) bool {
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
		if h.ending == nil || h.ending.Cause != metadata.EndingAutoUnlocked {
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
		forced[h.id()] = h.wiped || h.ending != nil && h.ending.Cause == metadata.EndingForced ||
			strings.Contains(j.forced.String(), h.uuid)
	}
	var all []belief
	for _, t := range j.told {
		for _, b := range t.beliefs() {
			if !forced[b.holdID] && !j.stood(b) {
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

// stood reports whether the process stood still while it believed.
func (j *judgement) stood(b belief) bool {
	p := j.processes[b.process]
	return p != nil && slices.ContainsFunc(p.pauses, func(pause [2]int64) bool {
		return pause[0] <= b.to+int64(time.Second) && pause[1] >= b.from
	})
}

func (j *judgement) keepersLive() {
	for _, h := range j.holds {
		if j.keepers.live[h.uuid] != "" && h.ending != nil {
			j.found(ruleKeeper, "%v was %s by %s: %s", h, h.ending.Cause, h.ending.By, h.ending.Reason)
		}
	}
}
