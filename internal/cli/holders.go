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

// gather is how long changes are collected before they are processed: an update costs time for every lock.
const gather = 100 * time.Millisecond

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

// orShares is err, or the names of the holders if the lock is shared.
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
