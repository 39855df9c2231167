package cli

import (
	"context"

	"github.com/spf13/cobra"
)

type waitOptions struct {
	app   *app
	names names
	wait  waitTimeout
}

func newWait(a *app) *cobra.Command {
	o := &waitOptions{app: a, wait: waitTimeout{forever: true}}
	cmd := &cobra.Command{
		Use:   "wait NAME",
		Short: "Wait until nobody holds a lock",
		Long: `Wait until nobody holds a lock. The lock is not taken, so another process may take it right away.
Exits with 3 if it is still held after --wait.

A semaphore or read-write lock is free when nobody has a permit, reads or writes. To wait for one of
its holders, give the holder's name: pool#2. Waiters in the queue do not count. A lock is not free
within its lock delay.`,
		Example: `  mutexctl wait db/migrate --wait 10m && ./start.sh
  mutexctl wait transcoding   # until all permits are back`,
		Args: wants(1, 1, "NAME"), ValidArgsFunction: a.completeLocks,
	}
	o.names.flag(cmd)
	cmd.Flags().Var(&o.wait, "wait", "how long to wait: a duration, 0 to check once, or forever")
	cmd.Flags().BoolVarP(&a.quiet, "quiet", "q", false, "do not report who holds it")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		name, err := o.names.parse(args[0])
		if err != nil {
			return err
		}
		return o.run(cmd.Context(), name)
	}
	return cmd
}

func (o *waitOptions) run(ctx context.Context, name string) error {
	s, err := o.app.open(ctx)
	if err != nil {
		return err
	}
	defer s.close()
	holders, err := s.holdersOf(ctx, name)
	if err != nil {
		return err
	}
	delays, err := s.delays(ctx, name)
	var state string
	switch {
	case err != nil:
		return err
	case len(holders) > 0:
		state = s.heldBy(name, holders)
	case len(delays) > 0:
		state = s.delayedBy(name, delays)
	default:
		return nil
	}
	if o.wait.none() {
		return heldf("gave up waiting: %s", state)
	}
	ctx, stop := o.wait.bound(ctx)
	defer stop()
	return s.untilFree(ctx, name, false, state)
}
