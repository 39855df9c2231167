package lockstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/protocol"
)

// errCaughtUp ends the watch that reads the past.
var errCaughtUp = errors.New("caught up")

// pastPatience is how long etcd may be silent while it reads the past. It sends nothing meanwhile, not even signs of
// life, and begins anew after every thousand revisions.
const pastPatience = 2 * time.Minute

// Past calls standing for every key below the prefix as of one revision, and then each for every revision after it, up
// to the newest one. It goes back as far as etcd does, but not more than most revisions. After an error, discard what
// both were given.
//
// etcd reads all those revisions at once, of all its keys, whatever their prefix: so most bounds what it costs etcd.
func (s *Store) Past(ctx context.Context, most int64, standing func(protocol.KV),
	each func(revision int64, events []protocol.Event)) error {
	if err := s.past(ctx, most, standing, each); err != nil {
		return fmt.Errorf("read the past of %s: %w", s.layout.Prefix(), err)
	}
	return nil
}

func (s *Store) past(ctx context.Context, most int64, standing func(protocol.KV),
	each func(revision int64, events []protocol.Event)) error {
	newest, err := s.revision(ctx)
	if err != nil {
		return err
	}
	from, err := s.readable(ctx, max(1, newest-most))
	if err != nil {
		return err
	}
	if err := s.ListPrefix(ctx, s.layout.Prefix(), from, standing); err != nil || from >= newest {
		return err
	}
	ctx, caughtUp := context.WithCancelCause(ctx)
	defer caughtUp(nil)
	err = s.watch(ctx, from, pastPatience, func(revision int64, events []protocol.Event) {
		if revision <= newest {
			each(revision, events)
		}
		if revision >= newest {
			caughtUp(errCaughtUp)
		}
	})
	if errors.Is(err, errCaughtUp) {
		return nil
	}
	return err
}

// revision returns the newest revision.
func (s *Store) revision(ctx context.Context) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	head, err := s.etcd.Get(ctx, s.layout.Prefix(), clientv3.WithCountOnly())
	if err != nil {
		return 0, err
	}
	return head.Header.Revision, nil
}

// readable returns the revision if it can be read, and otherwise the first that can.
func (s *Store) readable(ctx context.Context, revision int64) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err := s.etcd.Get(ctx, s.layout.Prefix(), clientv3.WithCountOnly(), clientv3.WithRev(revision))
	if !errors.Is(err, rpctypes.ErrCompacted) {
		return revision, err
	}
	watcher := clientv3.NewWatcher(s.etcd) // only a watch says which it is
	defer watcher.Close()
	for resp := range watcher.Watch(clientv3.WithRequireLeader(ctx), s.layout.Prefix(), clientv3.WithRev(revision)) {
		if resp.CompactRevision > 0 {
			return resp.CompactRevision, nil
		}
		if err := resp.Err(); err != nil {
			return 0, err
		}
	}
	return 0, reason(ctx, errClosed)
}
