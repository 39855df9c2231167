package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/clustermutex/unlocker/internal/cli/term"
	"github.com/clustermutex/unlocker/internal/lockjson"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

type showOptions struct {
	app    *app
	format *term.Format
	names  names
	raw    bool
}

func newShow(a *app) *cobra.Command {
	o := &showOptions{app: a}
	cmd := &cobra.Command{
		Use:   "show NAME",
		Short: "Show everything about one lock",
		Long: `Show who holds a lock, where, since when and why; when it alerts and when it is auto-unlocked; its
backtrace; what is wrong with its record; and who waits for it. Exits with 4 when nobody holds it.

For a semaphore or read-write lock, show lists all holders and the free permits. To see one holder
in full, give its own name, such as pool#2.

` + lockHelp() + `

For a semaphore or read-write lock as a whole, state is the worst of its holders', permits are those
taken, and what only a single hold has is null. One lock has these members, too:

` + lockjson.DocumentShape().Help() + `

A process:

` + lockjson.ProcessShape().Help() + `

A statement of a witness:

` + lockjson.StatementShape().Help() + `

A waiter:

` + lockjson.WaiterShape().Help() + `

A field, with --raw:

` + lockjson.FieldShape().Help(),
		Example: `  mutexctl show nightly/report
  mutexctl show nightly/report --raw
  mutexctl show nightly/report -o json | jq -r .backtrace`,
		Args:              wants(1, 1, "NAME"),
		ValidArgsFunction: a.completeLocks,
	}
	o.format = term.Output(cmd, term.TableFormat, term.JSONFormat)
	o.names.flag(cmd)
	cmd.Flags().BoolVar(&o.raw, "raw", false, "also show the keys as they are stored")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		name, err := o.names.any(args[0])
		if err != nil {
			return err
		}
		return o.run(cmd.Context(), name)
	}
	return cmd
}

func (o *showOptions) run(ctx context.Context, name string) error {
	s, err := o.app.open(ctx)
	if err != nil {
		return err
	}
	defer s.close()
	doc, err := s.get(ctx, name)
	if err != nil && status(err) != ExitNoLock {
		return err
	}
	holders, failed := s.shares(ctx, name)
	switch {
	case failed != nil:
		return failed
	case err != nil && len(holders) == 0:
		return err
	case err != nil:
		doc.Name = name
	}
	if err := s.heed(ctx, append(slices.Clone(holders), &doc.Record)...); err != nil {
		return err
	}
	waiters, err := s.queue(ctx, doc.Queue())
	if err != nil {
		return err
	}
	if o.format.JSON() {
		return writeJSON(o.app.Stdout, o.json(&doc, holders, waiters))
	}
	p := page{now: o.app.Now(), facts: term.Table{Coloured: term.TakesColours(o.app.Stdout)}}
	p.whole(&doc, holders)
	p.waiters(waiters)
	p.block("backtrace", doc.Backtrace)
	if o.raw {
		p.fields(doc.Fields)
	}
	return p.write(o.app.Stdout)
}

// page is the text about one lock: label and value, line by line.
type page struct {
	now    time.Time
	facts  term.Table
	blocks []string
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

// fact adds a line; an unknown value is shown as such.
func (p *page) fact(label, value string) {
	p.facts.Row(label, orNone(value))
}

func (p *page) state(state staleness.State) {
	p.fact("state", string(state))
	p.facts.Paint(1, stateColour(state))
}

// whole shows a lock with all its holders.
func (p *page) whole(doc *metadata.Document, holders []*metadata.Record) {
	if len(doc.Fields) > 0 {
		p.lock(doc)
	} else {
		p.fact("lock", text.Visible(doc.Name))
		p.state(worst(holders, p.now))
	}
	if len(holders) > 0 {
		p.fact("kind", useOf(holders).words())
	}
	for _, r := range holders {
		state := judge(r, p.now).State
		if r.Death != nil {
			p.fact("witness", text.Visible(r.Name)+": "+deathWords(r, p.now))
		}
		line := fmt.Sprintf("%s %s: %s", text.Visible(r.Name), state, who(r))
		if r.Purpose != "" {
			line += " for " + shortText(r.Purpose)
		}
		p.fact("holder", fmt.Sprintf("%s, since %s, auto-unlock %s", line, relative(r.LockedAt, p.now),
			relative(r.AutoUnlockAt, p.now)))
	}
}

// worst is the worst of the holders' states.
func worst(holders []*metadata.Record, now time.Time) staleness.State {
	state := staleness.Held
	for _, r := range holders {
		if next := judge(r, now).State; slices.Index(staleness.States(), next) > slices.Index(staleness.States(),
			state) {
			state = next
		}
	}
	return state
}

func (p *page) lock(doc *metadata.Document) {
	p.fact("lock", text.Visible(doc.Name))
	p.state(judge(&doc.Record, p.now).State)
	p.witness(&doc.Record)
	if share := metadata.ShareOf(doc.Name, doc.Attributes); share.Lock != "" {
		p.fact("kind", shareWords(share)+" of "+text.Visible(share.Lock))
	} else if share.Kind != "" {
		p.fact("kind", shareWords(share))
	}
	p.fact("owner", text.Visible(doc.Owner))
	p.fact("host", text.Visible(doc.Hostname))
	p.fact("pid", number(doc.PID))
	p.fact("purpose", text.Visible(doc.Purpose))
	p.fact("locked", instant(doc.LockedAt, p.now))
	if words := clockWords(judge(&doc.Record, p.now)); words != "" {
		p.fact("holder's clock", words+", at least")
	}
	p.fact("alert", dated(doc.AlertAt, alert(&doc.Record, p.now)))
	p.fact("auto-unlock", instant(doc.AutoUnlockAt, p.now))
	if doc.Alive != nil {
		p.fact("alive", instant(doc.Alive.At, p.now)+" "+text.Visible(doc.Alive.Progress))
	}
	p.fact("uuid", text.Visible(doc.UUID))
	p.fact("token", number(doc.Token))
	p.fact("revision", number(doc.Revision))
	p.fact("client", text.Visible(doc.Client))
	for _, name := range sorted(doc.Attributes) {
		p.fact("attribute", text.Visible(name)+" = "+text.Visible(fmt.Sprint(doc.Attributes[name])))
	}
	for _, problem := range doc.Problems {
		p.fact("problem", fmt.Sprintf("%s (%s)", text.Prose(problem.String()), problem.Reason))
	}
}

func (p *page) waiters(waiters []metadata.Waiter) {
	for i, w := range waiters {
		who := metadata.Record{Hostname: w.Hostname, PID: w.PID}
		line := fmt.Sprintf("%d. %s on %s since %s", i+1, shortText(w.Owner), hostPID(&who),
			instant(w.Since.Time, p.now))
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

func number(n int64) string {
	if n == 0 {
		return term.None
	}
	return strconv.FormatInt(n, 10)
}

func sorted[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

func (o *showOptions) json(doc *metadata.Document, holders []*metadata.Record,
	waiters []metadata.Waiter) lockjson.Document {
	now := o.app.Now()
	j := lockjson.Document{Client: lockjson.Known(doc.Client), Backtrace: lockjson.Known(doc.Backtrace),
		Queue: lockjson.Waiters(waiters, now)}
	for _, r := range holders {
		j.Holders = append(j.Holders, newLockJSON(r, waiters, now))
	}
	if len(doc.Fields) == 0 {
		j.Lock = lockjson.Whole(doc.Name, j.Holders, lockjson.QueueOf(waiters), now)
	} else {
		j.Lock = newLockJSON(&doc.Record, waiters, now)
	}
	if o.raw {
		for _, f := range doc.Fields {
			j.Fields = append(j.Fields, lockjson.NewField(f))
		}
	}
	return j
}
