package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/bsm/redislock"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/clustermutex/unlocker/bench/servers"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

// The kinds of locks.
const (
	kindOurs  = "ours"
	kindLease = "lease"
	kindRedis = "redis"
)

// client says how a process takes locks.
type client struct {
	Kind            string
	Addr            string        // of the server, or of what stands between
	Prefix          string        // of our locks
	AutoUnlockAfter time.Duration // of our locks; 0 is the default
}

// locker takes locks and waits for them.
type locker interface {
	lock(ctx context.Context, name string) (held, error)
}

// held is a lock that was taken.
type held interface {
	keep(ctx context.Context) error // what a holder does every few seconds; an error may be temporary
	isLost() bool                   // whether the holder knows that it no longer has the lock
	unlock() error
}

func (c client) connect() (locker, error) {
	switch c.Kind {
	case kindRedis:
		return redisLocker{redislock.New(servers.RedisClient(c.Addr))}, nil
	case kindLease:
		etcd, err := servers.EtcdClient(c.Addr)
		return leaseLocker{etcd}, err
	case kindOurs:
		etcd, err := servers.EtcdClient(c.Addr)
		if err != nil {
			return nil, err
		}
		o := mutex.Options{Owner: "bench", Prefix: c.Prefix}
		if c.AutoUnlockAfter > 0 {
			o.Defaults = []mutex.Option{mutex.AlertAfter(c.AutoUnlockAfter / 3),
				mutex.AutoUnlockAfter(c.AutoUnlockAfter)}
		}
		locks, err := mutex.New(etcd, o)
		return ourLocker{locks}, err
	}
	return nil, fmt.Errorf("no such kind of lock: %q", c.Kind)
}

type ourLocker struct{ locks *mutex.Client }

func (o ourLocker) lock(ctx context.Context, name string) (held, error) {
	l, err := o.locks.Lock(ctx, name)
	return ourLock{l}, err
}

type ourLock struct{ *mutex.Lock }

func (l ourLock) keep(ctx context.Context) error { return l.Alive(ctx) }
func (l ourLock) unlock() error                  { return l.Unlock() }
func (l ourLock) isLost() bool                   { return closed(l.Lost()) }

// leaseLocker is etcd's recipe with a session, and thus a lease, for each lock: the locks do not end together.
type leaseLocker struct{ etcd *clientv3.Client }

func (s leaseLocker) lock(ctx context.Context, name string) (held, error) {
	session, err := concurrency.NewSession(s.etcd, concurrency.WithTTL(int(life.Seconds())))
	if err != nil {
		return nil, err
	}
	m := concurrency.NewMutex(session, "/lease/"+name)
	return leaseLock{session, m}, m.Lock(ctx)
}

type leaseLock struct {
	session *concurrency.Session
	mutex   *concurrency.Mutex
}

func (l leaseLock) keep(context.Context) error { return nil } // the session does
func (l leaseLock) isLost() bool               { return closed(l.session.Done()) }
func (l leaseLock) unlock() error {
	return errors.Join(l.mutex.Unlock(context.Background()), l.session.Close())
}

type redisLocker struct{ locks *redislock.Client }

func (r redisLocker) lock(ctx context.Context, name string) (held, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Hour) // otherwise it gives up after the time to live
	defer cancel()
	retry := redislock.ExponentialBackoff(16*time.Millisecond, 256*time.Millisecond)
	l, err := r.locks.Obtain(ctx, name, life, &redislock.Options{RetryStrategy: retry})
	return &redisLock{Lock: l}, err
}

type redisLock struct {
	*redislock.Lock
	lost atomic.Bool
}

func (l *redisLock) keep(ctx context.Context) error {
	err := l.Refresh(ctx, life, nil)
	if errors.Is(err, redislock.ErrNotObtained) {
		l.lost.Store(true)
	}
	return err
}
func (l *redisLock) isLost() bool  { return l.lost.Load() }
func (l *redisLock) unlock() error { return l.Release(context.Background()) }

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
