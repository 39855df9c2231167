package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

func newAsk(a *app) *cobra.Command {
	d := &deed{}
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
	}
	d.flags(cmd, "why, for the holder and the audit trail (required)")
	d.runs(cmd, a, d.check, func(ctx context.Context, s *session, doc *metadata.Document) (string, error) {
		err := d.send(ctx, s, &doc.Record, "ask the holder of", func(ctx context.Context) error {
			return s.store.AskHolder(ctx, &doc.Record, d.action(s, protocol.ActionAsk, &doc.Record))
		})
		return fmt.Sprintf("asked the holder of %s to finish: %s", text.Visible(doc.Name), s.holder(&doc.Record)), err
	})
	return cmd
}
