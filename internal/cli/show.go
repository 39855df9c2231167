package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/clustermutex/unlocker/internal/cli/term"
	"github.com/clustermutex/unlocker/internal/lockjson"
	"github.com/clustermutex/unlocker/internal/text"
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
backtrace; what is wrong with its record; and who waits for it. Exits with 4 when nobody holds it, and
then shows who waits, lock delays, and the last hold that its holder did not end.

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
	l, err := s.look(ctx, name)
	if err != nil {
		return err
	}
	if !l.nothing() {
		if err := o.print(l); err != nil {
			return err
		}
	}
	switch {
	case l.held():
		return nil
	case len(l.Delays) > 0:
		return noLockf("%s", s.delayedBy(name, l.Delays))
	}
	return noLockf("nobody holds %s", text.Visible(name))
}

func (o *showOptions) print(l *look) error {
	if o.format.JSON() {
		return writeJSON(o.app.Stdout, l.json(o.raw))
	}
	p := newPage(l, o.app.Stdout)
	if o.raw {
		p.fields(l.Whole.Fields)
	}
	return p.write(o.app.Stdout)
}
