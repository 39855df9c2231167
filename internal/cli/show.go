package cli

import (
	"context"
	"slices"

	"github.com/spf13/cobra"

	"github.com/clustermutex/unlocker/internal/cli/term"
	"github.com/clustermutex/unlocker/internal/lockjson"
	"github.com/clustermutex/unlocker/internal/protocol"
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

A diagnosis, from the record, what its holder's process waits for, and past holds that others than
their holders ended; the dashboard compares with those that were released, too:

` + lockjson.DiagnosisShape().Help() + `

A statement of a witness:

` + lockjson.StatementShape().Help() + `

A request to finish:

` + lockjson.AskedShape().Help() + `

More time:

` + lockjson.ExtendedShape().Help() + `

An acknowledgement:

` + lockjson.AcknowledgedShape().Help() + `

A lock delay:

` + lockjson.DelayShape().Help() + `

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
		name, err := o.names.parse(args[0])
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
		return s.orDelay(ctx, name, err)
	case err != nil:
		doc.Name = name
	}
	if err := s.heed(ctx, append(slices.Clone(holders), &doc.Record)...); err != nil {
		return err
	}
	delays, err := s.delays(ctx, name)
	if err != nil {
		return err
	}
	waiters, err := s.queue(ctx, doc.Queue())
	if err != nil {
		return err
	}
	now := o.app.Now()
	diagnosed, err := s.diagnose(ctx, &doc, now)
	if err != nil {
		return err
	}
	decided, err := s.fate(ctx)
	if err != nil {
		return err
	}
	if o.format.JSON() {
		j := o.json(&doc, decided.Policy, holders, waiters, delays)
		j.Diagnosis = lockjson.NewDiagnosis(diagnosed, now)
		return writeJSON(o.app.Stdout, j)
	}
	p := page{now: now, diagnosis: diagnosed, fate: &decided, facts: term.Table{Coloured: term.TakesColours(o.app.Stdout)}}
	p.whole(&doc, holders)
	for _, d := range delays {
		p.fact("lock delay", text.Visible(d.Lock)+": "+protocol.DelayWords(&d, p.now))
	}
	p.waiters(waiters)
	p.block("backtrace", doc.Backtrace)
	if o.raw {
		p.fields(doc.Fields)
	}
	return p.write(o.app.Stdout)
}

func (o *showOptions) json(doc *metadata.Document, by staleness.Policy, holders []*metadata.Record,
	waiters []metadata.Waiter, delays []metadata.Delay) lockjson.Document {
	now := o.app.Now()
	j := lockjson.Document{Client: lockjson.Known(doc.Client), Backtrace: lockjson.Known(doc.Backtrace),
		Queue: lockjson.Waiters(waiters, now), Delays: lockjson.Delays(delays, now)}
	for _, r := range holders {
		j.Holders = append(j.Holders, newLockJSON(r, by, waiters, now))
	}
	if len(doc.Fields) == 0 {
		j.Lock = lockjson.Whole(doc.Name, j.Holders, lockjson.QueueOf(waiters), now)
	} else {
		j.Lock = newLockJSON(&doc.Record, by, waiters, now)
	}
	if o.raw {
		for _, f := range doc.Fields {
			j.Fields = append(j.Fields, lockjson.NewField(f))
		}
	}
	return j
}
