package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/clustermutex/unlocker/internal/flags"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

type extendOptions struct {
	deed deed
	by   time.Duration
}

func newExtend(a *app) *cobra.Command {
	o := &extendOptions{}
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
	}
	o.deed.flags(cmd, "why, for the record and the audit trail (required)")
	cmd.Flags().DurationVar(&o.by, "by", 0, "how much time to give, up to 168h (required)")
	flags.CommandLineOnly(cmd.Flags(), "by")
	o.deed.runs(cmd, a, o.check, o.run)
	return cmd
}

func (o *extendOptions) check() error {
	if o.by == 0 {
		return usagef("give --by, how much time to add")
	}
	if err := protocol.CheckMoreTimeOf(o.by); err != nil {
		return usagef("--by is %v: %w", o.by, err)
	}
	if o.by%time.Second != 0 {
		return usagef("--by must be in whole seconds")
	}
	return o.deed.check()
}

func (o *extendOptions) run(ctx context.Context, s *session, doc *metadata.Document) (string, error) {
	action := o.deed.action(s, protocol.ActionExtend, &doc.Record)
	action.Seconds = int64(o.by / time.Second)
	err := o.deed.send(ctx, s, &doc.Record, "extend", func(ctx context.Context) error {
		return s.store.Extend(ctx, &doc.Record, action)
	})
	now := s.app.Now()
	alertAt, autoUnlockAt := protocol.MoreTime(&doc.Record, o.by, action.At.Time)
	return fmt.Sprintf("gave %s more to %s: alert %s, auto-unlock %s; held by %s", text.Duration(o.by),
		text.Visible(doc.Name), relative(alertAt, now), relative(autoUnlockAt, now), s.holder(&doc.Record)), err
}
