package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/clustermutex/unlocker/internal/lockstore"
	"github.com/clustermutex/unlocker/internal/text"
)

type waitOptions struct {
	names names
	wait  waitTimeout
}

func newWait(a *app) *cobra.Command {
	o := &waitOptions{wait: waitTimeout{forever: true}}
	cmd := &cobra.Command{
		Use:   "wait NAME",
		Short: "Wait until nobody holds a lock",
		Long: `Wait until nobody holds a lock. The lock is not taken, so another process may take it right away.
Exits with 3 if it is still held after --wait.

A semaphore or read-write lock is free when nobody has a permit, reads or writes. To wait for one of
its holders, give the holder's name: pool#2. Waiters in the queue do not count. A lock is not free
during its lock delay.`,
		Example: `  mutexctl wait db/migrate --wait 10m && ./start.sh
  mutexctl wait transcoding   # until all permits are back`,
		ValidArgsFunction: a.completeNames,
	}
	o.names.flag(cmd)
	cmd.Flags().Var(&o.wait, "wait", "how long to wait: a duration, 0 to check once, or forever")
	cmd.Flags().BoolVarP(&a.quiet, "quiet", "q", false, "do not report that it is held")
	o.names.onLock(cmd, a, nil, func(ctx context.Context, s *session, name string) error {
		return a.notFree(o.untilFree(ctx, s, name), ExitHeld)
	})
	return cmd
}

func (o *waitOptions) untilFree(ctx context.Context, s *session, name string) error {
	l, err := s.read(ctx, name)
	state := s.takenText(&l)
	switch {
	case err != nil || state == "":
		return err
	case o.wait.triesOnce():
		return heldErrorf("gave up waiting: %s", state)
	}
	ctx, stop := o.wait.withTimeout(ctx)
	defer stop()
	return s.untilFree(ctx, name, false, state)
}

// takenText returns a line that says who holds the lock, or which lock delay keeps others from it; empty if it is free.
func (s *session) takenText(l *lockstore.LockInfo) string {
	holders := l.Holders()
	if len(holders) == 0 {
		return s.delayText(l.Record.Name, l.Delays)
	}
	line := fmt.Sprintf("%s is held by %s", text.Visible(l.Record.Name), s.describeHolder(holders[0]))
	if more := len(holders) - 1; more > 0 {
		line += " and " + text.Count(more, "other")
	}
	return line
}

// updateDelay is how long changes are collected before an update, because each update reads everything.
const updateDelay = 100 * time.Millisecond

// untilFree waits until the lock has no holder, no lock delay and, with queueToo, no waiters. It first reports state, a
// description of the lock, and keeps waiting during outages of etcd.
func (s *session) untilFree(ctx context.Context, name string, queueToo bool, state string) error {
	s.app.noteUnlessQuiet("waiting: %s", state)
	var failed error
	ended := s.store.WatchLock(ctx, name, func() (enough bool) {
		l, err := s.read(ctx, name)
		taken := s.takenText(&l)
		switch {
		case err != nil && ctx.Err() == nil && !isOutage(err):
			failed = err
			return true
		case err == nil && taken == "" && !(queueToo && len(l.Waiters) > 0):
			return true
		case taken != "":
			state = taken
		}
		sleep(ctx, updateDelay)
		return false
	})
	switch {
	case ended == nil:
		return failed
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return cmp.Or(s.outage(ctx), heldErrorf("gave up waiting: %s", state))
	}
	return ended
}
