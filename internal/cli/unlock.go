package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

type unlockOptions struct {
	app *app
	own ownHold
}

func newUnlock(a *app) *cobra.Command {
	o := &unlockOptions{app: a}
	cmd := &cobra.Command{
		Use:   "unlock [NAME]",
		Short: "Release a lock that you hold",
		Long: `Release a lock on behalf of its holder, who knows its uuid: usually a script that took it with
reserve. It does what the holder's own program does when it is done: it writes nothing to history or
audit, and asks for no reason. To end somebody else's hold, use force-unlock.

Under "mutexctl run", run releases the lock itself; a command that does so earlier is ended, because
its lock is gone.

Only the hold with that uuid is ended. Exits with 3 when another process holds the lock, 4 when nobody
does. The message says who ended the hold and why, if that is known: whatever was done since then was
done without the lock.`,
		Example: `  mutexctl unlock nightly/report --uuid 3f1c6b1e-6f0a-4c3a-9f57-0d3a6f1f2a55

  export MUTEX_NAME=db/migrate
  export MUTEX_UUID=$(mutexctl reserve $MUTEX_NAME --for 1h --purpose 'by hand')
  ./migrate.sh && mutexctl unlock`,
		Args:              wants(0, 1, "[NAME]"),
		ValidArgsFunction: a.completeNames,
	}
	o.own.flags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := o.own.read(args, "; to end the hold of somebody else use force-unlock"); err != nil {
			return err
		}
		return o.run(cmd.Context())
	}
	return cmd
}

func (o *unlockOptions) run(ctx context.Context) error {
	s, err := o.app.open(ctx)
	if err != nil {
		return err
	}
	defer s.close()
	locks, err := s.locks(nil)
	if err != nil {
		return err
	}
	defer locks.Close() // goes on releasing it if etcd did not answer
	lock, err := s.adopt(ctx, locks, &o.own)
	if err != nil {
		return err
	}
	if err := lock.Unlock(); err != nil {
		return s.holdError(ctx, "unlock "+text.Visible(lock.Name()), err)
	}
	_, err = fmt.Fprintf(o.app.Stdout, "unlocked %s\n", text.Visible(lock.Name()))
	return err
}

// holder is one line about who holds a lock.
func (s *session) holder(r *metadata.Record) string {
	now := s.app.Now()
	line := fmt.Sprintf("%s on %s", shortText(r.Owner), hostPID(r))
	if words := shareWords(metadata.ShareOf(r.Name, r.Attributes)); words != "" {
		line += " as " + words
	}
	if !r.LockedAt.IsZero() {
		line += " for " + age(r.LockedAt, now)
	}
	if r.Purpose != "" {
		line += " (" + shortText(r.Purpose) + ")"
	}
	if r.Proven() {
		line += ", whose end is proven: " + protocol.HowItEnded(r.Death, now)
	}
	return line + ", uuid " + shortText(r.UUID)
}
