package cli

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// markCommands are the commands that write into the record of somebody else's hold and take nothing away.
func markCommands(a *app) []*cobra.Command {
	return []*cobra.Command{newAck(a), newAsk(a), newExtend(a)}
}

func newAsk(a *app) *cobra.Command {
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
	return a.markCommand(cmd, &markCommand{verb: protocol.ActionAsk, doing: "ask the holder of",
		why: "why, for the holder and the audit trail (required)",
		done: func(s *session, r *metadata.Record, _ protocol.Action) string {
			return fmt.Sprintf("asked the holder of %s to finish: %s", text.Visible(r.Name), s.holder(r))
		}})
}

func newExtend(a *app) *cobra.Command {
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
	return a.markCommand(cmd, &markCommand{verb: protocol.ActionExtend, doing: "extend",
		why:        "why, for the record and the audit trail (required)",
		lengthFlag: "by", lengthUsage: "how much time to give, up to 168h (required)",
		lengthMissing: "how much time to add",
		done:          extended})
}

func extended(s *session, r *metadata.Record, a protocol.Action) string {
	now := s.app.Now()
	alertAt, autoUnlockAt := protocol.MoreTime(r, a.Length(), a.At.Time)
	return fmt.Sprintf("gave %s more to %s: alert %s, auto-unlock %s; held by %s", text.Duration(a.Length()),
		text.Visible(r.Name), relative(alertAt, now), relative(autoUnlockAt, now), s.holder(r))
}

func newAck(a *app) *cobra.Command {
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
	return a.markCommand(cmd, &markCommand{verb: protocol.ActionAcknowledge, doing: "acknowledge",
		why:        "what you do about it, for everybody",
		lengthFlag: "for", lengthUsage: "how long it lasts, 1m to 24h", length: 30 * time.Minute,
		done: func(s *session, r *metadata.Record, a protocol.Action) string {
			line := fmt.Sprintf("acknowledged %s for %s", text.Visible(r.Name), text.Duration(a.Length()))
			if earlier := r.AcknowledgedAt(a.At.Time); earlier != nil {
				line += ", in place of " + protocol.Person(earlier.By)
			}
			return line + "; held by " + s.holder(r)
		},
		undoFlag: "withdraw", undoUsage: "end the acknowledgement that is there",
		undoing: "withdraw the acknowledgement of",
		undone: func(s *session, r *metadata.Record) string {
			return fmt.Sprintf("withdrew the acknowledgement of %s by %s; held by %s", text.Visible(r.Name),
				protocol.Person(r.Acknowledged.By), s.holder(r))
		}})
}
