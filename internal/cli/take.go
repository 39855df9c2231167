package cli

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

// lookAgain is how often a waiting run looks who holds the lock, to tell the person in front of it. It is no part of the waiting.
const lookAgain = 2 * time.Second

// take takes the lock, waiting for it as long as is wanted.
func (s *session) take(ctx context.Context, locks *mutex.Client, name string, wait patience) (*mutex.Lock, error) {
	if err := s.prove(ctx); err != nil {
		return nil, err
	}
	lock, err := locks.TryLock(ctx, name)
	var held *mutex.HeldError
	if !errors.As(err, &held) {
		return lock, s.takeError(ctx, name, err)
	}
	if held.Holder.UUID != "" && held.Holder.UUID == os.Getenv(envUUID) {
		return nil, heldf("%s is held on behalf of this very command (MUTEX_UUID): to wait for it would never end", visible(name))
	}
	if !wait.forever && wait.limit == 0 {
		return nil, heldf("%w", held)
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	if !wait.forever {
		ctx, stop = context.WithTimeout(ctx, wait.limit)
		defer stop()
	}
	go s.tell(ctx, name, held)
	lock, err = locks.Lock(ctx, name)
	return lock, s.takeError(ctx, name, err)
}

// takeError says why the lock was not taken: held by another in time, the options made no sense, or etcd.
func (s *session) takeError(ctx context.Context, name string, err error) error {
	var held *mutex.HeldError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &held) && errors.Is(ctx.Err(), context.DeadlineExceeded):
		held.Err = nil
		return heldf("gave up waiting: %w", held)
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return heldf("gave up waiting for %s", visible(name))
	}
	return s.explain(ctx, "take "+visible(name), err)
}

// tell says who holds the lock, once per holder, until the context ends.
func (s *session) tell(ctx context.Context, name string, held *mutex.HeldError) {
	tick := time.NewTicker(lookAgain)
	defer tick.Stop()
	told := ""
	for {
		if uuid := held.Holder.UUID; held.Holder.Token != 0 && uuid != told {
			s.app.note("waiting: %v", held)
			told = uuid
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if doc, err := s.look(ctx, name); err == nil {
			held = &mutex.HeldError{Lock: name, Holder: doc, At: s.app.Now()}
		}
	}
}

func (s *session) look(ctx context.Context, name string) (metadata.Document, error) {
	asking, cancel := s.request(ctx)
	defer cancel()
	doc, _, err := s.store.Get(asking, name)
	return doc, err
}
