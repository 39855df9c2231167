package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

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
		Long: `Report that the work under a lock is making progress. This postpones alert and auto-unlock, by as
long as last time, or until --for from now. PROGRESS appears on the dashboard and in "mutexctl show".
Deadlines never move back.

Under "mutexctl run", NAME and --uuid are not needed: run passes them in MUTEX_NAME and MUTEX_UUID.
It extends its lock by itself while the command lives, but only alive postpones the alert and shows
how far the work is.

Exits with 3 when another process holds the lock, 4 when nobody does. The message says who ended the
hold and why, if that is known.`,
		Example: `  mutexctl run nightly/report --expect 10m -- sh -c './step-1 && mutexctl alive --progress "1 of 2 steps" && ./step-2'
  mutexctl alive nightly/report --uuid "$uuid" 3 of 12 files done
  mutexctl alive db/migrate --uuid "$uuid" --for 1h`,
		Args:              wants(0, -1, "[NAME [PROGRESS...]]"),
		ValidArgsFunction: a.completeNames,
	}
	o.own.flags(cmd)
	cmd.Flags().DurationVar(&o.hold, "for", 0, "how long from now (default: as long as last time)")
	cmd.Flags().StringVar(&o.progress, "progress", "",
		"`text` that says how far the work is; the same as PROGRESS")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if cmd.Flags().Changed("for") {
			if err := times(map[string]time.Duration{"for": o.hold}); err != nil {
				return err
			}
		}
		if err := o.own.read(args, ""); err != nil {
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
		options = append(options, mutex.AutoUnlockAfter(o.hold))
	}
	locks, err := s.locks(options) // which checks them
	if err != nil {
		return err
	}
	defer locks.Close()
	if err := s.check(ctx); err != nil {
		return err
	}
	lock, err := s.adopt(ctx, locks, &o.own, options...)
	if err != nil {
		return err
	}
	defer lock.Detach()
	if err := o.extendable(ctx, s, lock); err != nil {
		return err
	}
	now := o.app.Now().Truncate(time.Millisecond) // as times are written
	if err := lock.Alive(ctx, o.progress); err != nil {
		return s.holdError(ctx, "extend "+text.Visible(lock.Name()), err)
	}
	return o.printDeadline(ctx, s, lock, now)
}

// extendable returns an error if the record does not say enough to postpone its deadlines.
func (o *aliveOptions) extendable(ctx context.Context, s *session, lock *mutex.Lock) error {
	doc, err := s.get(ctx, lock.Name())
	switch {
	case err != nil:
		return err
	case doc.AutoUnlockAt.IsZero():
		return fmt.Errorf("the record of %s has no readable auto_unlock_at to postpone",
			text.Visible(doc.Name))
	case o.hold == 0 && unknownSpan(&doc.Record):
		return usagef("the record does not say how long %s was taken for: give --for", text.Visible(doc.Name))
	}
	return nil
}

// unknownSpan reports whether the record leaves open by how much to postpone its deadlines.
func unknownSpan(r *metadata.Record) bool {
	return r.AlertAt.IsZero() || r.LockedAt.IsZero() && (r.Alive == nil || r.Alive.At.IsZero())
}

// printDeadline prints until when etcd now says the lock is held.
func (o *aliveOptions) printDeadline(ctx context.Context, s *session, lock *mutex.Lock, now time.Time) error {
	doc, err := s.get(ctx, lock.Name())
	if err != nil {
		return err
	}
	line := fmt.Sprintf("extended %s until %s", text.Visible(lock.Name()), instant(doc.AutoUnlockAt, now))
	if o.hold > 0 && doc.AutoUnlockAt.Sub(now) > o.hold+time.Second {
		line = fmt.Sprintf("%s is held until %s, which is later", text.Visible(lock.Name()),
			instant(doc.AutoUnlockAt, now))
	}
	_, err = fmt.Fprintln(o.app.Stdout, line)
	return err
}
