package cli

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/clustermutex/unlocker/internal/flags"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

type reserveOptions struct {
	app *app
	takeFlags
	hold, expect time.Duration
	onceFor      string
}

func newReserve(a *app) *cobra.Command {
	o := &reserveOptions{app: a}
	cmd := &cobra.Command{
		Use:   "reserve NAME --for DURATION --purpose PURPOSE",
		Short: "Take a lock without a running program",
		Long: `Take a lock for some time, for maintenance or for a script that holds it over several commands.
Nothing runs and nothing extends it: after --for it alerts and is auto-unlocked; with --expect, the
alert comes earlier. The uuid of the hold is printed to stdout; use it to release the lock (unlock) or to
postpone its end (alive).

With --semaphore, permits are reserved; with --exclusive, a whole semaphore or read-write lock. Refer
to a reserved share by its own name, such as pool#2, or by that of the lock.

Exits with 3 if the lock was not free within --wait. Without --wait, reserve does not wait.`,
		Example: `  mutexctl reserve db/migrate --for 2h --purpose 'maintenance, ticket OPS-12'
  uuid=$(mutexctl reserve nightly/report --for 10m --purpose 'by hand' --wait 0) || exit
  ./step-1.sh && mutexctl alive nightly/report --uuid "$uuid" && ./step-2.sh
  mutexctl unlock nightly/report --uuid "$uuid"
  mutexctl reserve reboots --semaphore 2 --once-for "$(hostname)" --for 1h --purpose 'kernel update'`,
		Args: argCount(1, 1, "NAME"),
	}
	o.takeFlags.add(cmd, waitTimeout{})
	cmd.Flags().StringVar(&o.owner, "owner", "", "`name` of the holder (default: user@host)")
	cmd.Flags().StringVar(&o.onceFor, "once-for", "", "`owner` that has one reservation: a later call prints its uuid")
	cmd.Flags().DurationVar(&o.hold, "for", 0, "how long to hold the lock (required)")
	cmd.Flags().DurationVar(&o.expect, "expect", 0, "when to raise an alert (default: after --for)")
	flags.Positive(cmd.Flags(), "expect")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		name, err := o.names.parseValid(args[0])
		if err != nil {
			return err
		}
		return o.run(cmd.Context(), name)
	}
	return cmd
}

// check sets defaults, and returns an error if the flags contradict each other.
func (o *reserveOptions) check() error {
	switch {
	case o.hold == 0:
		return usageErrorf("give --for, how long to reserve the lock")
	case o.hold < time.Second:
		return usageErrorf("--for is %v: it must be at least 1s", o.hold)
	case o.purpose == "":
		return usageErrorf("give a --purpose: no program is there to ask what this lock is held for")
	case o.onceFor != "" && o.owner != "":
		return usageErrorf("--once-for names the owner: it excludes --owner")
	case o.expect == 0 && !o.given.Changed("expect"):
		o.expect = o.hold
	case o.expect > o.hold:
		return usageErrorf("--expect is %v: it must not be longer than --for, which is %v: the alert comes before the "+
			"auto-unlock", o.expect, o.hold)
	}
	o.owner = cmp.Or(o.owner, o.onceFor, operatorName())
	return nil
}

func (o *reserveOptions) run(ctx context.Context, name string) error {
	if err := o.check(); err != nil {
		return err
	}
	options, err := o.options(name)
	if err != nil {
		return err
	}
	s, err := o.app.connect()
	if err != nil {
		return err
	}
	defer s.close()
	locks, err := s.locks(nil, append(options, mutex.AutoUnlockAfter(o.hold), mutex.AlertAfter(o.expect))...)
	if err != nil {
		return err
	}
	defer locks.Close() // does not release the hold
	r, err := o.reserve(ctx, s, locks, name)
	if err != nil {
		return err
	}
	fmt.Fprintf(o.app.Stderr, "reserved %s until %s\n", text.Visible(r.Name), timeText(r.Until, o.app.Now()))
	if _, err = fmt.Fprintln(o.app.Stdout, r.UUID); err == nil || o.onceFor != "" {
		return err
	}
	if lock, failed := locks.Adopt(ctx, r.Name, r.UUID); failed == nil {
		_ = lock.Unlock() // nobody else has the uuid to release it
	}
	return err
}

// reserve reserves the lock. With --once-for, it looks for a reservation of the owner before and after: of two calls at
// the same time, the older reservation remains.
func (o *reserveOptions) reserve(ctx context.Context, s *session, locks *mutex.Client,
	name string) (mutex.Reservation, error) {
	if own, err := s.reservationOf(ctx, name, o.onceFor); err != nil || own.Token != 0 {
		return own, err
	}
	reserve := locks.Reserve
	if o.wait.triesOnce() {
		reserve = locks.TryReserve
	}
	r, err := take(ctx, s, name, &o.takeFlags,
		func(ctx context.Context, options ...mutex.Option) (mutex.Reservation, error) {
			return reserve(ctx, name, o.purpose, o.hold, append(options, mutex.AlertAfter(o.expect))...)
		})
	if err != nil {
		return r, err
	}
	own, err := s.reservationOf(ctx, name, o.onceFor)
	if err != nil || own.Token == 0 || own.Token == r.Token {
		return r, nil
	}
	extra, err := locks.Adopt(ctx, r.Name, r.UUID)
	if err == nil {
		err = extra.Unlock()
	}
	return own, s.holdError(ctx, "release the second reservation, "+text.Visible(r.Name), err)
}

// reservationOf returns the oldest reservation of an owner; its token is 0 if there is none, or the owner is empty.
func (s *session) reservationOf(ctx context.Context, name, owner string) (found mutex.Reservation, err error) {
	if owner == "" {
		return found, nil
	}
	l, err := s.read(ctx, name)
	for _, d := range append(l.Shares, l.Record) {
		isOwn := d.Token != 0 && d.Owner == owner && d.Attributes[mutex.AttributeReserved] == true
		if isOwn && (found.Token == 0 || d.Token < found.Token) {
			found = mutex.Reservation{Name: d.Name, UUID: d.UUID, Token: d.Token, Until: d.AutoUnlockAt}
		}
	}
	return found, err
}
