package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/clustermutex/unlocker/internal/flags"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

type ackOptions struct {
	deed     deed
	length   time.Duration
	withdraw bool
	given    func(flag string) bool
}

func newAck(a *app) *cobra.Command {
	o := &ackOptions{}
	cmd := &cobra.Command{
		Use:     "ack NAME [--for DURATION] [--note NOTE]",
		Aliases: []string{"acknowledge"},
		Short:   "Tell everybody that you look at a lock",
		Long: `Tell everybody that you look at a lock, and until when: dashboards, "mutexctl list" and "mutexctl
show" have your name, and so do the alerts about the lock. It ends by itself after --for, and with the
hold: the next hold of the lock is not acknowledged.

It silences no alert and changes nothing for the holder. A later acknowledgement replaces an earlier
one, whoever made it. --withdraw ends it before its time, whoever made it.

With --uuid, only the hold that you saw is acknowledged. Acknowledge the holders of a semaphore or
read-write lock one at a time, by their own names: pool#2.

Exits with 3 when another process holds the lock, 4 when nobody does. It is recorded in the lock's
record, and in the audit trail with user@host and the source "cli".`,
		Example: `  mutexctl ack nightly/report --for 30m --note 'looking at the disk of node-7'
  mutexctl ack nightly/report --withdraw`,
	}
	o.deed.flagsWith(cmd, "note", "what you do about it, for everybody")
	cmd.Flags().DurationVar(&o.length, "for", 30*time.Minute, "how long it lasts, 1m to 24h")
	cmd.Flags().BoolVar(&o.withdraw, "withdraw", false, "end the acknowledgement that is there")
	flags.CommandLineOnly(cmd.Flags(), "for", "withdraw")
	o.given = cmd.Flags().Changed
	o.deed.runs(cmd, a, o.check, o.run)
	return cmd
}

func (o *ackOptions) check() error {
	if o.withdraw && (o.given("for") || o.given("note")) {
		return usagef("--withdraw takes neither --for nor --note")
	}
	if err := protocol.CheckAcknowledgeFor(o.length); err != nil {
		return usagef("--for is %v: %w", o.length, err)
	}
	if o.length%time.Second != 0 {
		return usagef("--for must be in whole seconds")
	}
	o.deed.reason = strings.TrimSpace(o.deed.reason)
	if err := protocol.CheckNote(o.deed.reason); err != nil {
		return usagef("--note: %w", err)
	}
	return nil
}

func (o *ackOptions) run(ctx context.Context, s *session, doc *metadata.Document) (string, error) {
	r := &doc.Record
	if o.withdraw {
		err := o.deed.send(ctx, s, r, "withdraw the acknowledgement of", func(ctx context.Context) error {
			return s.store.WithdrawAcknowledgement(ctx, r, o.deed.action(s, protocol.ActionWithdraw, r))
		})
		if err != nil {
			return "", err
		}
		return fmt.Sprintf("withdrew the acknowledgement of %s by %s; held by %s", text.Visible(r.Name),
			protocol.Acknowledger(r.Acknowledged), s.holder(r)), nil
	}
	action := o.deed.action(s, protocol.ActionAcknowledge, r)
	action.Seconds = int64(o.length / time.Second)
	err := o.deed.send(ctx, s, r, "acknowledge", func(ctx context.Context) error {
		return s.store.Acknowledge(ctx, r, action)
	})
	line := fmt.Sprintf("acknowledged %s for %s", text.Visible(r.Name), text.Duration(o.length))
	if earlier := r.AcknowledgedAt(action.At.Time); earlier != nil {
		line += ", in place of " + protocol.Acknowledger(earlier)
	}
	return line + "; held by " + s.holder(r), err
}

// acknowledged is who looks at the hold in r, and for how much longer; empty if nobody does.
func acknowledged(r *metadata.Record, now time.Time) string {
	a := r.AcknowledgedAt(now)
	if a == nil {
		return ""
	}
	return shortText(a.By) + ", " + text.Countdown(a.Until.Sub(now)) + " left"
}
