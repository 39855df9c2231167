package cli

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"

	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

// take takes the lock with a function of the library, and waits for it as long as --wait allows.
func take[T any](ctx context.Context, s *session, name string, t *takeFlags,
	acquire func(context.Context, ...mutex.Option) (T, error)) (taken T, err error) {
	ctx, stop := t.wait.withTimeout(ctx)
	defer stop()
	if err := s.waitForEtcd(ctx, t.wait); err != nil {
		return taken, err
	}
	ctx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	taken, err = acquire(ctx, mutex.OnWait(func(held *mutex.HeldError) {
		if err := t.checkWaiting(held); err != nil {
			giveUp(err)
			return
		}
		s.app.noteUnlessQuiet("waiting: %v", held)
	}))
	if held, isHeld := errors.AsType[*mutex.HeldError](err); isHeld && t.wait.triesOnce() {
		return taken, t.checkWaiting(held)
	}
	return taken, s.takeError(ctx, name, err)
}

// checkWaiting returns an error if --wait is 0, or the wait would never end.
func (t *takeFlags) checkWaiting(held *mutex.HeldError) error {
	switch {
	case waitsForItself(held, strings.Fields(protocol.Under(os.Getenv))):
		return heldErrorf("%s is held on behalf of this very command: waiting for it would never end",
			text.Visible(held.Name))
	case t.wait.triesOnce():
		return heldErrorf("%w", held)
	}
	return nil
}

// takeError explains why the lock was not taken.
func (s *session) takeError(ctx context.Context, name string, err error) error {
	held, isHeld := errors.AsType[*mutex.HeldError](err)
	switch {
	case err == nil:
		return nil
	case isHeld && errors.Is(ctx.Err(), context.DeadlineExceeded):
		if outage := s.outage(ctx); outage != nil {
			return outage
		}
		held.Err = nil
		return heldErrorf("gave up waiting: %w", held)
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return heldErrorf("gave up waiting for %s", text.Visible(name))
	}
	return s.explain(ctx, "take "+text.Visible(name), err)
}

// waitsForItself reports whether this command waits for a lock that is held on its own behalf, by one of the holds
// under which it runs.
func waitsForItself(held *mutex.HeldError, under []string) bool {
	holders := append([]metadata.FullRecord{held.Holder}, held.Holders...)
	return slices.ContainsFunc(holders, func(r metadata.FullRecord) bool {
		isWhole := r.Name == held.Name
		switch {
		case !slices.Contains(under, r.UUID):
			return false
		case held.Kind == metadata.KindShared:
			return isWhole
		case held.Kind == metadata.KindSemaphore:
			return isWhole || held.Weight > held.Limit-r.Permits()
		}
		return true
	})
}
