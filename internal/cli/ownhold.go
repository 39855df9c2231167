package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/clustermutex/unlocker/internal/flags"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

// ownHold names a hold of the caller, by arguments and flags or by the variables that run sets for its command.
type ownHold struct {
	names      names
	name, uuid string
}

func (h *ownHold) flags(cmd *cobra.Command) {
	h.names.flag(cmd)
	f := cmd.Flags()
	f.StringVar(&h.uuid, "uuid", os.Getenv(protocol.EnvUUID), "the uuid of the hold (default: $MUTEX_UUID)")
	f.Lookup("uuid").DefValue = "" // the help does not depend on the environment
}

// parse reads the lock's name from the arguments or, without any, from the environment.
func (h *ownHold) parse(args []string, hint string) (err error) {
	switch {
	case h.uuid == "":
		return usageErrorf("give the --uuid of your hold%s", hint)
	case len(args) > 0:
		h.name, err = h.names.parse(args[0])
		return err
	}
	if h.name = os.Getenv(envName); h.name == "" {
		return usageErrorf("NAME is missing, and MUTEX_NAME is not set")
	}
	return nil
}

// find reads the record of the hold. If h names the lock of a share, it now names the share.
func (s *session) find(ctx context.Context, h *ownHold) (*metadata.FullRecord, error) {
	l, err := s.read(ctx, h.name)
	for i := range l.Shares {
		if l.Shares[i].UUID == h.uuid {
			h.name = l.Shares[i].Name
			return &l.Shares[i], err
		}
	}
	return &l.Record, err
}

// adopt returns a handle of the hold that was found.
func (s *session) adopt(ctx context.Context, locks *mutex.Client, h *ownHold,
	options ...mutex.Option) (*mutex.Lock, error) {
	lock, err := locks.Adopt(ctx, h.name, h.uuid, append(options, mutex.OnBehalfOfHolder())...)
	return lock, s.holdError(ctx, "find the hold of "+text.Visible(h.name), err)
}

// holdError gives an error about a lost hold its exit status. The error itself says who holds the lock, and how the
// hold ended.
func (s *session) holdError(ctx context.Context, doing string, err error) error {
	lost, isLost := errors.AsType[*mutex.LostError](err)
	switch {
	case err == nil:
		return nil
	case isLost && lost.Holder == nil && lost.Certain:
		return noLockErrorf("%w", lost)
	case isLost:
		return heldErrorf("%w", lost)
	}
	return s.explain(ctx, doing, err)
}

type aliveOptions struct {
	app      *app
	own      ownHold
	hold     time.Duration
	progress string
}

func newAlive(a *app) *cobra.Command {
	o := &aliveOptions{app: a}
	cmd := &cobra.Command{
		Use:   "alive [NAME [PROGRESS...]]",
		Short: "Postpone alert and auto-unlock of a lock that you hold",
		Long: `Report that the work under a lock is making progress. This postpones alert and auto-unlock, by as much
as before or to --for from now. PROGRESS appears on the dashboard and in "mutexctl show". Deadlines
never move back.

Under "mutexctl run", NAME and --uuid are not needed: run passes them in MUTEX_NAME and MUTEX_UUID.
While the command runs, run extends the lock, but only alive postpones the alert and shows how far the
work is.`,
		Example: `  mutexctl run report --expect 10m -- sh -c './one && mutexctl alive --progress "1 of 2" && ./two'
  mutexctl alive nightly/report --uuid "$uuid" 3 of 12 files done
  mutexctl alive db/migrate --uuid "$uuid" --for 1h`,
		Args:              argCount(0, -1, "[NAME [PROGRESS...]]"),
		ValidArgsFunction: a.completeNames,
	}
	o.own.flags(cmd)
	cmd.Flags().DurationVar(&o.hold, "for", 0, "how long from now (default: the same as before)")
	flags.Positive(cmd.Flags(), "for")
	cmd.Flags().StringVar(&o.progress, "progress", "",
		"`text` that says how far the work is; the same as PROGRESS")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := o.own.parse(args, ""); err != nil {
			return err
		}
		if len(args) > 1 {
			o.progress = strings.TrimSpace(o.progress + " " + strings.Join(args[1:], " "))
		}
		return o.run(cmd.Context())
	}
	return cmd
}

func (o *aliveOptions) run(ctx context.Context) error {
	s, err := o.app.connect()
	if err != nil {
		return err
	}
	defer s.close()
	var options []mutex.Option
	if o.hold > 0 {
		options = append(options, mutex.AutoUnlockAfter(o.hold), mutex.AlertAfter(o.hold))
	}
	locks, err := s.locks(nil, options...) // which checks them
	if err != nil {
		return err
	}
	defer locks.Close()
	if err := s.check(ctx); err != nil {
		return err
	}
	doc, err := s.find(ctx, &o.own)
	if err != nil {
		return err
	}
	if err := o.checkExtendable(&doc.Record); err != nil {
		return err
	}
	lock, err := s.adopt(ctx, locks, &o.own, options...)
	if err != nil {
		return err
	}
	defer lock.Detach()
	now := o.app.Now().Truncate(time.Millisecond) // as times are written
	if err := lock.Alive(ctx, o.progress); err != nil {
		return s.holdError(ctx, "extend "+text.Visible(lock.Name()), err)
	}
	return o.printDeadline(ctx, s, now)
}

// checkExtendable returns an error if the record of the hold does not say enough to postpone its deadlines.
func (o *aliveOptions) checkExtendable(r *metadata.Record) error {
	unknownSpan := r.AlertAt.IsZero() || r.LockedAt.IsZero() && (r.Alive == nil || r.Alive.At.IsZero())
	switch {
	case r.UUID != o.own.uuid: // to adopt it fails, and says who has the lock
		return nil
	case r.AutoUnlockAt.IsZero():
		return fmt.Errorf("the record of %s has no readable auto_unlock_at to postpone", text.Visible(r.Name))
	case o.hold == 0 && unknownSpan:
		return usageErrorf("the record does not say how long %s was taken for: give --for", text.Visible(r.Name))
	}
	return nil
}

// printDeadline prints until when the lock is held, according to etcd.
func (o *aliveOptions) printDeadline(ctx context.Context, s *session, now time.Time) error {
	doc, err := s.find(ctx, &o.own)
	if err != nil {
		return err
	}
	until := timeText(doc.AutoUnlockAt, now)
	line := fmt.Sprintf("extended %s until %s", text.Visible(doc.Name), until)
	if o.hold > 0 && doc.AutoUnlockAt.Sub(now) > o.hold+time.Second {
		line = fmt.Sprintf("%s is held until %s, which is later", text.Visible(doc.Name), until)
	}
	_, err = fmt.Fprintln(o.app.Stdout, line)
	return err
}

type unlockOptions struct {
	app *app
	own ownHold
}

func newUnlock(a *app) *cobra.Command {
	o := &unlockOptions{app: a}
	cmd := &cobra.Command{
		Use:   "unlock [NAME]",
		Short: "Release a lock that you hold",
		Long: `Release a lock on behalf of its holder, by the hold's uuid: usually in a script that took it with
reserve. This is an ordinary release: it writes nothing to history or audit, and needs no reason. To
end another's hold, use force-unlock.

Under "mutexctl run", run releases the lock itself; a command that does so earlier is ended, because
its lock is gone.

Exits with 3 when another process holds the lock, 4 when nobody does: the lock was lost, and what was
done since then was done without it.`,
		Example: `  mutexctl unlock nightly/report --uuid 3f1c6b1e-6f0a-4c3a-9f57-0d3a6f1f2a55

  export MUTEX_NAME=db/migrate
  export MUTEX_UUID=$(mutexctl reserve $MUTEX_NAME --for 1h --purpose 'by hand')
  ./migrate.sh && mutexctl unlock`,
		Args:              argCount(0, 1, "[NAME]"),
		ValidArgsFunction: a.completeNames,
	}
	o.own.flags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := o.own.parse(args, "; to end another's hold, use force-unlock"); err != nil {
			return err
		}
		return o.app.withSession(cmd.Context(), o.run)
	}
	return cmd
}

func (o *unlockOptions) run(ctx context.Context, s *session) error {
	locks, err := s.locks(nil)
	if err != nil {
		return err
	}
	defer locks.Close() // retries the release if etcd did not answer
	if _, err := s.find(ctx, &o.own); err != nil {
		return err
	}
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
