package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/clustermutex/unlocker/internal/flags"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/text"
)

type extendOptions struct {
	app  *app
	deed deed
	by   time.Duration
}

func newExtend(a *app) *cobra.Command {
	o := &extendOptions{app: a}
	cmd := &cobra.Command{
		Use:   "extend NAME --by DURATION --reason REASON",
		Short: "Give the holder of a lock more time, as an operator",
		Long: `Move alert and auto-unlock of somebody else's lock forward, for a holder that is healthy but slow:
by --by from now or, if they lie in the future, from where they are. A lock that alerts stops
alerting. Deadlines never move back, not even by what the holder does later.

Refused for a holder that is proven to have ended, and for a record without readable deadlines. With
--uuid, only the hold that you saw is extended. To extend a lock of your own, use alive.

Exits with 3 when another process holds the lock, or its deadline was moved meanwhile, 4 when nobody
holds it. It is recorded in the lock's record, and in the audit trail with the reason, user@host and
the source "cli".`,
		Example: `  mutexctl extend nightly/report --by 30m --reason 'the backup is slow, but it runs'
  mutexctl extend nightly/report --by 2h --uuid 3f1c6b1e-6f0a-4c3a-9f57-0d3a6f1f2a55 --reason 'waits for OPS-12'`,
		Args:              wants(1, 1, "NAME"),
		ValidArgsFunction: a.completeNames,
	}
	o.deed.flags(cmd, "why, for the record and the audit trail (required)")
	cmd.Flags().DurationVar(&o.by, "by", 0, "how much time to give, up to 168h (required)")
	flags.CommandLineOnly(cmd.Flags(), "by")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		name, err := o.deed.names.parse(args[0])
		if err != nil {
			return err
		}
		if err := o.check(); err != nil {
			return err
		}
		return o.run(cmd.Context(), name)
	}
	return cmd
}

func (o *extendOptions) check() error {
	if err := protocol.CheckMoreTimeOf(o.by); err != nil {
		return usagef("--by is %v: %w", o.by, err)
	}
	if o.by%time.Second != 0 {
		return usagef("--by must be in whole seconds")
	}
	return o.deed.check()
}

func (o *extendOptions) run(ctx context.Context, name string) error {
	s, err := o.app.open(ctx)
	if err != nil {
		return err
	}
	defer s.close()
	doc, err := o.deed.read(ctx, s, name)
	if err != nil {
		return err
	}
	action := o.deed.action(s, protocol.ActionExtend, &doc.Record)
	action.Seconds = int64(o.by / time.Second)
	request, cancel := s.request(ctx)
	defer cancel()
	err = s.store.Extend(request, &doc.Record, action)
	if err := o.deed.outcome(ctx, s, name, "extend "+text.Visible(name), err); err != nil {
		return err
	}
	alertAt, autoUnlockAt := protocol.MoreTime(&doc.Record, o.by, action.At.Time)
	_, err = fmt.Fprintf(o.app.Stdout, "gave %s more to %s: alert %s, auto-unlock %s; held by %s\n",
		text.Duration(o.by), text.Visible(name), relative(alertAt, o.app.Now()), relative(autoUnlockAt, o.app.Now()),
		s.holder(&doc.Record))
	return err
}
