package lockstore

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	lockRecheck     = 10 * time.Second // how often a lock is looked at without news, in case a watch went silent
	lockOpenTimeout = 3 * time.Second  // how long the opening of its watches may take
	lockRetry       = time.Second      // between two tries to watch it
)

// WatchLock calls look when the lock may have changed: once its watches are open, after changes of its record, of the
// records of its shares and of its queue, and now and then without any. Changes that come while look runs are one call.
// It blocks until look has seen enough, or returns why ctx ended.
//
// What happens to other locks is not even sent by etcd.
func (s *Store) WatchLock(ctx context.Context, lock string, look func() (enough bool)) error {
	for {
		if s.watchLock(ctx, lock, look) {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(lockRetry):
		}
		if look() {
			return nil
		}
	}
}

// watchLock watches until a watch breaks or look has seen enough. The watches are opened live, and look is called only
// when etcd has confirmed all of them, so that nothing is missed in between.
func (s *Store) watchLock(ctx context.Context, lock string, look func() bool) (enough bool) {
	ctx, stop := context.WithCancel(clientv3.WithRequireLeader(ctx))
	watcher := clientv3.NewWatcher(s.etcd) // a stream of its own, which another try does not meet again
	var helpers sync.WaitGroup
	defer func() {
		stop()
		watcher.Close()
		helpers.Wait()
	}()
	shares, sharesEnd := s.layout.Shares(lock)
	watches := []clientv3.WatchChan{
		watcher.Watch(ctx, s.layout.Record(lock), clientv3.WithPrefix(), clientv3.WithCreatedNotify()),
		watcher.Watch(ctx, shares, clientv3.WithRange(sharesEnd), clientv3.WithCreatedNotify()),
		watcher.Watch(ctx, s.layout.Queue(lock), clientv3.WithPrefix(), clientv3.WithCreatedNotify()),
	}
	var open atomic.Int32
	changed := make(chan struct{}, 1)
	for _, w := range watches {
		helpers.Go(func() {
			defer stop()
			for resp := range w {
				if resp.Err() != nil {
					return
				}
				if resp.Created {
					open.Add(1)
				}
				if int(open.Load()) == len(watches) {
					notify(changed)
				}
			}
		})
	}
	late := time.AfterFunc(lockOpenTimeout, stop)
	defer late.Stop()
	recheck := time.NewTicker(lockRecheck)
	defer recheck.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-changed:
			late.Stop()
		case <-recheck.C:
		}
		if look() {
			return true
		}
	}
}

// notify leaves a note that is read later, once.
func notify(changed chan<- struct{}) {
	select {
	case changed <- struct{}{}:
	default:
	}
}
