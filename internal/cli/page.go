package cli

import (
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/clustermutex/unlocker/internal/cli/term"
	"github.com/clustermutex/unlocker/internal/diagnosis"
	"github.com/clustermutex/unlocker/internal/diagnosis/fate"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

// page shows one lock to a person: rows of label and value, then blocks of text.
type page struct {
	now    time.Time
	fate   *fate.Fate // what unlockers do to stale locks
	facts  term.Table
	blocks []string
}

// newPage makes the page of a lock, to be written to w.
func newPage(l *look, w *os.File) *page {
	p := &page{now: l.now, fate: &l.fate, facts: term.Table{Coloured: term.TakesColours(w)}}
	p.lock(l)
	p.removed(l.removed)
	for _, d := range l.Delays {
		p.fact("lock delay", text.Visible(d.Lock)+": "+protocol.DescribeDelay(&d, p.now))
	}
	p.waiters(l.Waiters)
	p.block("backtrace", l.Whole.Backtrace)
	return p
}

func (p *page) write(w io.Writer) error {
	if err := p.facts.Write(w); err != nil {
		return err
	}
	for _, line := range p.blocks {
		if _, err := fmt.Fprintln(w, line); err != nil {
			return err
		}
	}
	return nil
}

// fact adds a row; an empty value is shown as a dash.
func (p *page) fact(label, value string) {
	p.facts.Row(label, orNone(value))
}

func (p *page) state(state staleness.State) {
	p.fact("state", string(state))
	p.facts.Paint(1, stateColour(state))
}

// lock shows a lock with all its holders.
func (p *page) lock(l *look) {
	holders := l.holders()
	p.fact("lock", text.Visible(l.Whole.Name))
	if v, ok := l.verdict(); ok {
		p.fact("verdict", v.String(p.now))
	}
	switch {
	case len(l.Whole.Fields) > 0:
		p.record(&l.Whole, l.diagnosis)
	case len(holders) > 0:
		p.state(worst(holders, p.now))
	default:
		p.fact("state", "free: nobody holds it")
	}
	if len(holders) > 0 {
		p.fact("kind", kindWords(protocol.OccupancyOf(holders)))
	}
	for _, r := range holders {
		p.holder(r)
	}
}

// kindWords are, for example, "semaphore, 5 of 8 permits taken by 3 holders, 3 free".
func kindWords(u protocol.Occupancy) string {
	switch {
	case u.Readers > 0:
		return "read-write lock, " + u.Describe()
	case u.Limit > 0:
		return "semaphore, " + u.Describe()
	}
	return u.Describe()
}

// holder shows one holder of a shared lock.
func (p *page) holder(r *metadata.Record) {
	if r.Death != nil {
		p.fact("witness", text.Visible(r.Name)+": "+deathWords(r, p.now))
	}
	line := fmt.Sprintf("%s %s: %s", text.Visible(r.Name), judge(r, p.now).State, who(r))
	if r.Purpose != "" {
		line += " for " + shortText(r.Purpose)
	}
	p.fact("holder", fmt.Sprintf("%s, since %s, auto-unlock %s", line, relative(r.LockedAt, p.now),
		relative(r.AutoUnlockAt, p.now)))
}

func (p *page) record(doc *metadata.Document, d diagnosis.Diagnosis) {
	judged := judge(&doc.Record, p.now)
	p.state(judged.State)
	p.witness(&doc.Record)
	if d.Word != diagnosis.Unknown && d.Word != diagnosis.Dead {
		p.fact("diagnosis", d.String(p.now))
	}
	if share := metadata.ShareOf(doc.Name, doc.Attributes); share.Lock != "" {
		p.fact("kind", protocol.DescribeShare(share)+" of "+text.Visible(share.Lock))
	} else if share.Kind != "" {
		p.fact("kind", protocol.DescribeShare(share))
	}
	for _, fact := range doc.Facts() {
		p.fact(fact.Label, text.Visible(fact.Value))
	}
	p.fact("purpose", text.Visible(doc.Purpose))
	p.fact("locked", instant(doc.LockedAt, p.now))
	if ahead := clockAhead(judged); ahead != "" {
		p.fact("holder's clock", ahead+", at least")
	}
	p.fact("alert", dated(judged.AlertAt, alert(&doc.Record, judged, p.now)))
	p.fact("auto-unlock", instant(doc.AutoUnlockAt, p.now))
	if words := fateOf(p.fate, &doc.Record); words != "" {
		p.fact("unlockers", words)
	}
	if doc.Alive != nil {
		p.fact("alive", strings.TrimSpace(instant(doc.Alive.At, p.now)+" "+text.Visible(doc.Alive.Progress)))
	}
	switch {
	case doc.LockDelay > 0:
		p.fact("lock delay", doc.LockDelay.String()+", if an unlocker or an operator ends the hold")
	case doc.LockDelay < 0:
		p.fact("lock delay", "none, whatever the unlocker's default")
	}
	p.operators(&doc.Record)
	p.fact("uuid", text.Visible(doc.UUID))
	p.fact("token", number(doc.Token))
	p.fact("revision", number(doc.Revision))
	p.fact("client", text.Visible(doc.Client))
	for _, name := range slices.Sorted(maps.Keys(doc.Attributes)) {
		p.fact("attribute", text.Visible(name)+" = "+text.Visible(fmt.Sprint(doc.Attributes[name])))
	}
	for _, problem := range doc.Problems {
		p.fact("problem", fmt.Sprintf("%s (%s)", text.Prose(problem.String()), problem.Reason))
	}
}

// operators shows what was done to the hold by others than its holder.
func (p *page) operators(r *metadata.Record) {
	if words := protocol.DescribeAcknowledgement(r, p.now); words != "" {
		p.fact("looked at", words)
	}
	if r.Asked != nil {
		p.fact("to finish", protocol.DescribeFinishRequest(r, p.now))
	}
	if r.Extended != nil {
		p.fact("more time", protocol.DescribeMoreTime(r.Extended, p.now))
	}
}

// removed shows how a hold ended that its holder did not end.
func (p *page) removed(e *metadata.Ending) {
	if e == nil {
		return
	}
	holder := whoAs(&e.Holder, metadata.ShareOf(e.Lock, e.Attributes))
	p.fact("last removal", fmt.Sprintf("held by %s, %s %s", holder, endingSentence(e), instant(e.EndedAt.Time, p.now)))
}

func (p *page) waiters(waiters []metadata.Waiter) {
	for i, w := range waiters {
		line := fmt.Sprintf("%d. %s since %s", i+1, whoAs(&w.Holder, metadata.Share{}), instant(w.Since.Time, p.now))
		if w.Purpose != "" {
			line += ": " + shortText(w.Purpose)
		}
		p.fact("waiting", line)
	}
}

func (p *page) block(title, text string) {
	if text == "" {
		return
	}
	p.blocks = append(p.blocks, "", title)
	for _, line := range term.Lines(text) {
		p.blocks = append(p.blocks, "  "+line)
	}
}

func (p *page) fields(fields []metadata.Field) {
	p.blocks = append(p.blocks, "", "fields, as stored (create revision, mod revision, value)")
	for _, f := range fields {
		p.blocks = append(p.blocks, fmt.Sprintf("  %s  %d  %d  %s", text.Visible(f.Name), f.CreateRevision,
			f.ModRevision, text.Visible(f.Value)))
	}
}

func worst(holders []*metadata.Record, now time.Time) staleness.State {
	state := staleness.Held
	for _, r := range holders {
		if next := judge(r, now).State; next.Urgency() < state.Urgency() {
			state = next
		}
	}
	return state
}

func number(n int64) string {
	if n == 0 {
		return term.None
	}
	return strconv.FormatInt(n, 10)
}
