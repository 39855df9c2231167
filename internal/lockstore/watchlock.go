package lockstore

import (
	"context"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/locktxn/etcdretry"
)

// lockRecheck is how often a lock is read again without events, in case a watch went silent.
const lockRecheck = 10 * time.Second

// WatchLock calls read when the lock may have changed: once its watches are open, after changes of its record, of the
// records of its shares, of their delays and of its queue, and occasionally without any. Changes during a call lead to
// one more call. It returns when read has seen enough, or with the reason when ctx ends.
//
// etcd does not send events of other locks.
func (s *Store) WatchLock(ctx context.Context, lock string, read func() (enough bool)) error {
	shares, sharesEnd := s.layout.Shares(lock)
	delays, delaysEnd := s.layout.LockAndShareDelays(lock)
	changed := make(chan struct{}, 1)
	var follower sync.WaitGroup
	defer follower.Wait()
	following, stop := context.WithCancel(ctx)
	defer stop()
	follower.Go(func() {
		check := func([]*clientv3.Event) bool {
			notify(changed)
			return false
		}
		etcdretry.New(s.client, etcdretry.Options{}).Follow(following, lockRecheck, check,
			etcdretry.WatchTarget{Key: s.layout.Record(lock), Options: []clientv3.OpOption{clientv3.WithPrefix()}},
			etcdretry.WatchTarget{Key: shares, Options: []clientv3.OpOption{clientv3.WithRange(sharesEnd)}},
			etcdretry.WatchTarget{Key: delays, Options: []clientv3.OpOption{clientv3.WithRange(delaysEnd)}},
			etcdretry.WatchTarget{Key: s.layout.Queue(lock), Options: []clientv3.OpOption{clientv3.WithPrefix()}})
	})
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-changed:
		}
		if read() {
			return nil
		}
	}
}

// notify sends a notification unless one is pending.
func notify(changed chan<- struct{}) {
	select {
	case changed <- struct{}{}:
	default:
	}
}
