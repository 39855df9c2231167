package lockstore

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	lockRecheck     = 10 * time.Second // how often a lock is read again without events, in case a watch went silent
	lockOpenTimeout = 3 * time.Second  // how long opening its watches may take
	lockRetry       = time.Second      // between attempts to watch it
)

// WatchLock calls read when the lock may have changed: once its watches are open, after changes of its record, of the
// records of its shares, of their delays and of its queue, and occasionally without any. Changes during a call lead to
// one more call. It returns when read has seen enough, or with the reason when ctx ends.
//
// etcd does not send events of other locks.
func (s *Store) WatchLock(ctx context.Context, lock string, read func() (enough bool)) error {
	for {
		if s.watchLock(ctx, lock, read) {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(lockRetry):
		}
		if read() {
			return nil
		}
	}
}

// watchLock watches until a watch breaks or read has seen enough. It calls read only after etcd has confirmed all
// watches, so that nothing is missed in between.
func (s *Store) watchLock(ctx context.Context, lock string, read func() bool) (enough bool) {
	ctx, stop := context.WithCancel(clientv3.WithRequireLeader(ctx))
	watcher, closeWatcher := s.newWatcher()
	var helpers sync.WaitGroup
	defer func() {
		stop()
		closeWatcher()
		helpers.Wait()
	}()
	shares, sharesEnd := s.layout.Shares(lock)
	delays, delaysEnd := s.layout.DelaysAbout(lock)
	watches := []clientv3.WatchChan{
		watcher.Watch(ctx, s.layout.Record(lock), clientv3.WithPrefix(), clientv3.WithCreatedNotify()),
		watcher.Watch(ctx, shares, clientv3.WithRange(sharesEnd), clientv3.WithCreatedNotify()),
		watcher.Watch(ctx, delays, clientv3.WithRange(delaysEnd), clientv3.WithCreatedNotify()),
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
		if read() {
			return true
		}
	}
}

// newWatcher makes a watcher with its own stream, so that each attempt gets a new one.
func (s *Store) newWatcher() (w clientv3.Watcher, closeIt func()) {
	if s.client.ActiveConnection() == nil { // an etcd in memory has no streams
		return s.client.Watcher, func() {}
	}
	w = clientv3.NewWatcher(s.client)
	return w, func() { _ = w.Close() }
}

// notify sends a notification unless one is pending.
func notify(changed chan<- struct{}) {
	select {
	case changed <- struct{}{}:
	default:
	}
}
