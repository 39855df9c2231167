package cli

import (
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/clustermutex/unlocker/internal/cli/term"
	"github.com/clustermutex/unlocker/internal/diagnosis"
	"github.com/clustermutex/unlocker/internal/headline"
	"github.com/clustermutex/unlocker/internal/lockjson"
	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/locks"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// lockReport describes one lock for people: rows of label and value, then blocks of text.
type lockReport struct {
	now    time.Time
	rows   term.Table
	blocks []string
}

func newLockReport(l *lockInfo, w *os.File) *lockReport {
	p := &lockReport{now: l.now, rows: term.Table{Coloured: term.TakesColours(w)}}
	p.lock(l)
	p.lastRemoval(l.removed)
	firstRows(p, "lock delay", l.Delays, func(_ int, d metadata.LockDelay) string {
		return text.Visible(d.Name) + ": " + protocol.DescribeDelay(&d, p.now)
	})
	p.waiters(l.Waiters)
	p.block("backtrace", l.Record.Backtrace)
	return p
}

func (p *lockReport) write(w io.Writer) error {
	if err := p.rows.Write(w); err != nil {
		return err
	}
	for _, line := range p.blocks {
		if _, err := fmt.Fprintln(w, line); err != nil {
			return err
		}
	}
	return nil
}

// maxRows is how many holders, delays and waiters of one lock a report has.
const maxRows = 50

// firstRows adds a row for each, and how many are left out.
func firstRows[T any](p *lockReport, label string, all []T, describe func(i int, one T) string) {
	for i, one := range all[:min(len(all), maxRows)] {
		p.row(label, describe(i, one))
	}
	if more := len(all) - maxRows; more > 0 {
		p.row(label, "and "+text.Thousands(more)+" more")
	}
}

// row adds a row; an empty value becomes a dash.
func (p *lockReport) row(label, value string) {
	p.rows.Row(label, orNone(value))
}

func (p *lockReport) state(state metadata.State) {
	p.row("state", string(state))
	p.rows.Paint(1, stateColour(state))
}

// lock adds the rows about a lock and all its holders.
func (p *lockReport) lock(l *lockInfo) {
	p.row("lock", text.Visible(l.Record.Name))
	if v, ok := l.headline(); ok {
		p.row("headline", v.String(p.now))
		if next := v.Command(); next != "" && next != text.Mutexctl("show", l.Record.Name) {
			p.row("next", next)
		}
	}
	switch {
	case l.row != nil:
		p.record(&l.Record, l.row, l.diagnosis)
	case len(l.shares) > 0:
		p.state(locks.SummarizeHolders(l.shares).Display)
	default:
		p.row("state", "free: nobody holds it")
	}
	if len(l.shares) > 0 {
		p.row("kind", kindText(locks.SummarizeHolders(l.shares).Occupancy))
	}
	firstRows(p, "holder", l.shares, p.holder)
}

// kindText returns a text such as "semaphore, 5 of 8 permits taken by 3 holders, 3 free".
func kindText(u protocol.Occupancy) string {
	switch {
	case u.Readers > 0:
		return "read-write lock, " + u.Describe()
	case u.Limit > 0:
		return "semaphore, " + u.Describe()
	}
	return u.Describe()
}

// holder describes one holder of a multi-holder lock, after a row about its death.
func (p *lockReport) holder(_ int, r *locks.Row) string {
	if r.Death != nil {
		p.row("witness", text.Visible(r.Name)+": "+deathText(r.Record, p.now))
	}
	line := fmt.Sprintf("%s %s: %s", text.Visible(r.Name), r.Display, holderText(r.Record))
	if r.Purpose != "" {
		line += " for " + shortText(r.Purpose)
	}
	return fmt.Sprintf("%s, since %s, auto-unlock %s", line, relative(r.LockedAt, p.now),
		relative(r.DueUnlock(), p.now))
}

func (p *lockReport) record(doc *metadata.FullRecord, row *locks.Row, d diagnosis.Diagnosis) {
	judged := row.Judgement
	p.state(row.Display)
	p.witness(&doc.Record)
	if d.Condition != diagnosis.Unknown && d.Condition != diagnosis.Dead {
		p.row("diagnosis", d.String(p.now))
	}
	if share := doc.Share(); share.LockName != "" {
		p.row("kind", protocol.DescribeShare(share)+" of "+text.Visible(share.LockName))
	} else if share.Kind != "" {
		p.row("kind", protocol.DescribeShare(share))
	}
	for _, fact := range lockrecord.Facts(&doc.Identity) {
		p.row(fact.Label, text.Visible(fact.Value))
	}
	p.row("purpose", text.Visible(doc.Purpose))
	p.row("locked", timeText(doc.LockedAt, p.now))
	if ahead := clockAhead(judged); ahead != "" {
		p.row("holder's clock", ahead+", at least")
	}
	p.row("alert", timeWithRemark(judged.DueAlert, alertText(&doc.Record, judged, p.now)))
	p.row("auto-unlock", p.autoUnlock(row))
	if doc.Alive != nil {
		p.row("alive", strings.TrimSpace(timeText(doc.Alive.At, p.now)+" "+text.Visible(doc.Alive.Progress)))
	}
	switch {
	case doc.LockDelay > 0:
		p.row("lock delay", doc.LockDelay.String()+", if an unlocker or an operator ends the hold")
	case doc.LockDelay < 0:
		p.row("lock delay", "none, whatever the unlocker's default")
	}
	p.operators(&doc.Record)
	p.row("uuid", text.Visible(doc.UUID))
	p.row("token", lockjson.OrZero(lockjson.Text(doc.Token)))
	p.row("revision", lockjson.OrZero(lockjson.Text(doc.Revision)))
	p.row("client", text.Visible(doc.Client))
	for _, name := range slices.Sorted(maps.Keys(doc.Attributes)) {
		p.row("attribute", text.Visible(name)+" = "+text.Visible(fmt.Sprint(doc.Attributes[name])))
	}
	for _, problem := range doc.Problems {
		p.row("problem", fmt.Sprintf("%s (%s)", text.Prose(problem.String()), problem.Kind))
	}
}

// autoUnlock returns when the lock is removed, and until when heartbeats prevent that.
func (p *lockReport) autoUnlock(row *locks.Row) string {
	at := row.DueUnlock()
	heartbeats := headline.HeartbeatsExtend(row, p.now)
	if heartbeats == "" {
		return timeText(at, p.now)
	}
	return timeWithRemark(at, relative(at, p.now)+"; "+heartbeats)
}

// operators adds the rows about what operators did to the hold.
func (p *lockReport) operators(r *metadata.Record) {
	if words := protocol.DescribeAcknowledgement(r, p.now); words != "" {
		p.row("looked at", words)
	}
	if r.FinishRequest != nil {
		p.row("to finish", protocol.DescribeFinishRequest(r, p.now))
	}
	if r.MoreTime != nil {
		p.row("more time", protocol.DescribeMoreTime(r.MoreTime, p.now))
	}
}

// lastRemoval adds the row about the last hold that an unlocker or an operator ended.
func (p *lockReport) lastRemoval(e *metadata.Ending) {
	if e == nil {
		return
	}
	holder := identityText(&e.Identity, e.Share())
	p.row("last removal", fmt.Sprintf("held by %s, %s %s", holder, endingSentence(e), timeText(e.EndedAt.Time, p.now)))
}

func (p *lockReport) waiters(waiters []metadata.Waiter) {
	firstRows(p, "waiting", waiters, func(i int, w metadata.Waiter) string {
		line := fmt.Sprintf("%d. %s since %s", i+1, identityText(&w.Identity, metadata.Share{}),
			timeText(w.Since.Time, p.now))
		if w.Purpose != "" {
			line += ": " + shortText(w.Purpose)
		}
		return line
	})
}

func (p *lockReport) block(title, text string) {
	if text == "" {
		return
	}
	p.blocks = append(p.blocks, "", title)
	for _, line := range term.Lines(text) {
		p.blocks = append(p.blocks, "  "+line)
	}
}

func (p *lockReport) fields(fields []metadata.Field) {
	p.blocks = append(p.blocks, "", "fields, as stored (create revision, mod revision, value)")
	for _, f := range fields {
		p.blocks = append(p.blocks, fmt.Sprintf("  %s  %d  %d  %s", text.Visible(f.Name), f.CreateRevision,
			f.ModRevision, text.Visible(f.Value)))
	}
}
