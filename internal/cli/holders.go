package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/clustermutex/unlocker/internal/cli/term"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// holdersOf reads the holders of the lock. A record without a uuid has no holder.
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
		err = s.applyStatements(ctx, shares...)
	}
	return shares, err
}

// heldBy says in one line who holds the lock.
func (s *session) heldBy(name string, holders []*metadata.Record) string {
	line := fmt.Sprintf("%s is held by %s", text.Visible(name), s.holder(holders[0]))
	if more := len(holders) - 1; more > 0 {
		line += " and " + text.Count(more, "other")
	}
	return line
}

// gather is how long changes are collected before they are processed, because every update reads all of them.
const gather = 100 * time.Millisecond

// untilFree waits until nobody holds the lock or any share of it, no lock delay keeps others back and, with queueToo,
// nobody queues for it. It reports state, which describes the lock, and waits through outages of etcd.
func (s *session) untilFree(ctx context.Context, name string, queueToo bool, state string) error {
	s.app.mention("waiting: %s", state)
	var failed error
	ended := s.store.WatchLock(ctx, name, func() (enough bool) {
		holders, queued, err := s.occupants(ctx, name, queueToo)
		var delays []metadata.Delay
		if err == nil && len(holders) == 0 {
			delays, err = s.delays(ctx, name)
		}
		switch {
		case err != nil && ctx.Err() == nil && !isOutage(err):
			failed = err
			return true
		case err == nil && len(holders) == 0 && len(delays) == 0 && !queued:
			return true
		case len(delays) > 0:
			state = s.delayedBy(name, delays)
		case len(holders) > 0:
			state = s.heldBy(name, holders)
		}
		sleep(ctx, gather)
		return false
	})
	switch {
	case ended == nil:
		return failed
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return heldf("gave up waiting: %s", state)
	}
	return ended
}

// occupants reads the holders of the lock and, with queueToo, whether anybody queues for it.
func (s *session) occupants(ctx context.Context, name string, queueToo bool) (holders []*metadata.Record, queued bool,
	err error) {
	if holders, err = s.holdersOf(ctx, name); err != nil || !queueToo {
		return holders, false, err
	}
	waiters, err := s.queue(ctx, name)
	return holders, len(waiters) > 0, err
}

// orShares returns err, or if the lock is shared an error that names the holders.
func (s *session) orShares(ctx context.Context, name string, err error) error {
	if status(err) != ExitNoLock {
		return err
	}
	shares, failed := s.shares(ctx, name)
	if failed != nil || len(shares) == 0 {
		return err
	}
	var each []string
	for _, r := range shares {
		each = append(each, text.Visible(r.Name))
	}
	return noLockf("nothing was done: %s is shared; name one of its holders: %s", text.Visible(name),
		term.Clip(strings.Join(each, ", "), 2*term.CellColumns))
}
