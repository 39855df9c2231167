package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/clustermutex/unlocker/internal/diagnosis"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

type forceUnlockOptions struct {
	operatorAction
	app          *app
	yes          bool
	endDelayOnly bool // instead of a hold
	evenAlive    bool // of the holds that a query finds also those of holders that live

	lockDelay time.Duration
	isGiven   func(flag string) bool
	policies  diagnosis.CombinedPolicy // of the unlockers
}

func newForceUnlock(a *app) *cobra.Command {
	o := &forceUnlockOptions{app: a}
	cmd := &cobra.Command{
		Use:   "force-unlock NAME|QUERY --reason REASON",
		Short: "End another's hold, or a lock delay, as an operator",
		Long: `Remove the record of a lock, whatever its deadlines say. The hold ends at once and the next waiter
gets the lock. The holder is NOT stopped: it may still be working, and learns of the loss only when
its library checks. Unless fencing tokens are checked, two processes may then work at the same time.
Safer: wait for its auto-unlock, ask the holder to finish (see ask), or, if it is only slow, give it
more time (see extend).

On a terminal it shows the lock as show does and asks for its name. Elsewhere --uuid and --yes are
required: the uuid of the hold you saw with show. If another hold is there by then, nothing is done
and the exit status is 3. For a record without a uuid, give --uuid none. End the holders of a
semaphore or read-write lock one at a time, by their own names: pool#2.

With a query as one argument, such as 'host:node-7 owner:batch' (see "mutexctl help query"), it lists the
matching holds, except those alive within the last minute, and asks for their number. A hold that has
changed by then is spared.

If the record or the unlockers ask for a lock delay, clients that honor lock delays do not take the lock
until it is over: see "mutexctl list --delays". Choose another with --lock-delay, 0 for none.

With --end-delay, end such a delay early, without confirmation: the next waiter gets the lock at once. Do
so only if you know that the former holder is no longer working.`,
		Example: `  mutexctl force-unlock nightly/report --reason 'node-7 is dead, ticket OPS-12'
  mutexctl force-unlock nightly/report --uuid 3f1c6b1e-6f0a-4c3a-9f57-0d3a6f1f2a55 --yes --reason 'node-7 is dead'
  mutexctl force-unlock host:node-7 --reason 'node-7 burnt down'   # all locks of a dead machine
  mutexctl force-unlock --end-delay nightly/report --reason 'node-7 is switched off'`,
		ValidArgsFunction: a.completeNames,
	}
	o.flags(cmd, protocol.VerbForceUnlock, "why, for history and audit trail (required)")
	cmd.Flags().BoolVar(&o.yes, "yes", false, "do not ask; needs --uuid")
	cmd.Flags().BoolVar(&o.endDelayOnly, "end-delay", false, "end the lock delay of NAME instead of a hold")
	cmd.Flags().BoolVar(&o.evenAlive, "even-alive", false, "with a QUERY: also holds alive within the last minute")
	cmd.Flags().DurationVar(&o.lockDelay, "lock-delay", 0,
		"keep others out afterwards, up to 1h; default: as the record or the unlockers say")
	o.isGiven = cmd.Flags().Changed
	o.names.onLock(cmd, a, o.check, o.run)
	return cmd
}

func (o *forceUnlockOptions) check() error {
	if o.endDelayOnly {
		if o.yes || o.isGiven("lock-delay") {
			return usageErrorf("--end-delay ends no hold: it goes with neither --yes nor --lock-delay")
		}
		return o.operatorAction.check(protocol.VerbEndDelay)
	}
	if err := o.operatorAction.check(protocol.VerbForceUnlock); err != nil {
		return err
	}
	switch {
	case o.lockDelay < 0 || o.lockDelay > metadata.MaxLockDelay:
		return usageErrorf("--lock-delay is %v: it must be between 0 and %v", o.lockDelay, metadata.MaxLockDelay)
	case o.yes && o.uuid == "":
		return usageErrorf("--yes needs the --uuid of the hold that you looked at with \"mutexctl show\"")
	case !o.yes && !o.app.interactive():
		return usageErrorf("there is no terminal to ask on: give --uuid and --yes")
	}
	return nil
}

func (o *forceUnlockOptions) run(ctx context.Context, s *session, name string) error {
	if o.endDelayOnly {
		return o.endDelay(ctx, s, name)
	}
	if q := o.query(name); q != nil {
		named, err := s.read(ctx, name)
		if err != nil {
			return err
		}
		if len(named.Record.Fields) == 0 && len(named.Shares) == 0 {
			return o.endBulk(ctx, s, q)
		}
	}
	return o.applyToHold(ctx, s, name, o.endHold)
}

func (o *forceUnlockOptions) endHold(ctx context.Context, s *session, doc *metadata.FullRecord) (string, error) {
	decided, err := s.combined(ctx)
	if err != nil {
		return "", err
	}
	o.policies = decided
	if !o.yes {
		if err := o.confirm(ctx, s, doc); err != nil {
			return "", err
		}
	}
	on := protocol.ActionTarget{Hold: &doc.Record, LockDelayAfter: o.delay(&doc.Record)}
	out, err := o.perform(ctx, s, protocol.VerbForceUnlock, on, o.action(s, &doc.Record), "force-unlock")
	line := fmt.Sprintf("force-unlocked %s, which was held by %s", text.Visible(doc.Name),
		s.describeHolder(&doc.Record))
	if out.LockDelayAfter > 0 {
		line += fmt.Sprintf("; a lock delay of %v has begun", out.LockDelayAfter)
	}
	return line, err
}

func (o *forceUnlockOptions) delay(r *metadata.Record) time.Duration {
	d := r.EffectiveLockDelay(o.policies.Policy.LockDelay)
	if o.isGiven("lock-delay") && r.Token != 0 {
		d = o.lockDelay
	}
	return (d + time.Second - 1).Truncate(time.Second)
}

// confirm shows the lock and asks for its name.
func (o *forceUnlockOptions) confirm(ctx context.Context, s *session, doc *metadata.FullRecord) error {
	l, err := s.lockInfo(ctx, doc.Name)
	if err != nil {
		return err
	}
	l.Record = *doc // show the record that will be deleted
	if err := newLockReport(l, o.app.Stderr).write(o.app.Stderr); err != nil {
		return err
	}
	next := "at once"
	if d := o.delay(&doc.Record); d > 0 {
		next = fmt.Sprintf("after a lock delay of %v", d)
	}
	return o.app.confirm(ctx, "\nThe record is deleted; the holder is NOT stopped and may still be working. The next "+
		"waiter gets the lock "+next+".\nType the lock's name to force-unlock it: ", ": that is not the lock's name",
		doc.Name, text.Visible(doc.Name))
}
