package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
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
its holders, give the holder's name: pool#2. Waiters in line for the lock do not count.`,
		Example: `  mutexctl wait db/migrate --wait 10m && ./start.sh
  mutexctl wait transcoding   # until all permits are back`,
		Args: wants(1, 1, "NAME"), ValidArgsFunction: a.completeLocks,
	}
	o.names.flag(cmd)
	cmd.Flags().Var(&o.wait, "wait", "how long to wait: a duration, 0 to check once, or forever")
	cmd.Flags().BoolVarP(&a.quiet, "quiet", "q", false, "do not report who holds it")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		name, err := o.names.any(args[0])
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
	switch {
	case err != nil:
		return err
	case len(holders) == 0:
		return nil
	case o.wait.none():
		return heldf("gave up waiting: %s", s.heldBy(name, holders))
	}
	ctx, stop := o.wait.bound(ctx)
	defer stop()
	return s.untilFree(ctx, name, false, s.heldBy(name, holders))
}

// holdersOf reads the holders of the lock. A record without a uuid is nobody's.
func (s *session) holdersOf(ctx context.Context, name string) ([]*metadata.Record, error) {
	doc, err := s.get(ctx, name)
	if err != nil && status(err) != ExitNoLock {
		return nil, err
	}
	shares, err := s.shares(ctx, name)
	if doc.Token != 0 {
		shares = append([]*metadata.Record{&doc.Record}, shares...)
	}
	if err == nil {
		err = s.heed(ctx, shares...)
	}
	return shares, err
}

// heldBy is one line about who holds the lock.
func (s *session) heldBy(name string, holders []*metadata.Record) string {
	line := fmt.Sprintf("%s is held by %s", text.Visible(name), s.holder(holders[0]))
	if more := len(holders) - 1; more > 0 {
		line += " and " + count(more, "other")
	}
	return line
}

// untilFree follows the lock until nobody holds it or any share of it and, with queueToo, nobody queues for it. It
// first reports how things stand, and it waits through an outage of etcd.
func (s *session) untilFree(ctx context.Context, name string, queueToo bool, standing string) error {
	s.app.mention("waiting: %s", standing)
	var failed error
	ended := s.store.WatchLock(ctx, name, func() (enough bool) {
		holders, queued, err := s.standing(ctx, name, queueToo)
		switch {
		case err != nil && ctx.Err() == nil && !isAway(err):
			failed = err
			return true
		case err == nil && len(holders) == 0 && !queued:
			return true
		case len(holders) > 0:
			standing = s.heldBy(name, holders)
		}
		sleep(ctx, gather)
		return false
	})
	switch {
	case ended == nil:
		return failed
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return heldf("gave up waiting: %s", standing)
	}
	return ended
}

// standing reads the holders of the lock and, with queueToo, whether somebody queues for it.
func (s *session) standing(ctx context.Context, name string, queueToo bool) (holders []*metadata.Record, queued bool,
	err error) {
	if holders, err = s.holdersOf(ctx, name); err != nil || !queueToo {
		return holders, false, err
	}
	waiters, err := s.queue(ctx, name)
	return holders, len(waiters) > 0, err
}
