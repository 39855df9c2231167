package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/text"
)

type askOptions struct {
	app  *app
	deed deed
}

func newAsk(a *app) *cobra.Command {
	o := &askOptions{app: a}
	cmd := &cobra.Command{
		Use:   "ask NAME --reason REASON",
		Short: "Ask the holder of a lock to finish, as an operator",
		Long: `Ask the holder of a lock to finish early. Nothing is taken away: the holder sees the request if its
library watches the lock, and finishes if it can. "mutexctl run" passes it on with --on-ask. A later
request replaces an earlier one. See with "mutexctl show" whether the holder has answered.

With --uuid, only the hold that you saw is asked. Ask the holders of a semaphore or read-write lock
one at a time, by their own names: pool#2.

Exits with 3 when another process holds the lock, 4 when nobody does. The request is recorded in the
lock's record, and in the audit trail with the reason, user@host and the source "cli".`,
		Example: `  mutexctl ask nightly/report --reason 'the deploy waits'
  mutexctl ask nightly/report --uuid 3f1c6b1e-6f0a-4c3a-9f57-0d3a6f1f2a55 --reason 'the deploy waits' --ticket OPS-12`,
		Args:              wants(1, 1, "NAME"),
		ValidArgsFunction: a.completeNames,
	}
	o.deed.flags(cmd, "why, for the holder and the audit trail (required)")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		name, err := o.deed.names.parse(args[0])
		if err != nil {
			return err
		}
		if err := o.deed.check(); err != nil {
			return err
		}
		return o.run(cmd.Context(), name)
	}
	return cmd
}

func (o *askOptions) run(ctx context.Context, name string) error {
	s, err := o.app.open(ctx)
	if err != nil {
		return err
	}
	defer s.close()
	doc, err := o.deed.read(ctx, s, name)
	if err != nil {
		return err
	}
	request, cancel := s.request(ctx)
	defer cancel()
	err = s.store.AskHolder(request, &doc.Record, o.deed.action(s, protocol.ActionAsk, &doc.Record))
	if err := o.deed.outcome(ctx, s, name, "ask the holder of "+text.Visible(name), err); err != nil {
		return err
	}
	_, err = fmt.Fprintf(o.app.Stdout, "asked the holder of %s to finish: %s\n", text.Visible(name),
		s.holder(&doc.Record))
	return err
}
