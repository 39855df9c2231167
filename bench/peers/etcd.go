package main

import (
	"context"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3lock/v3lockpb"

	"github.com/clustermutex/unlocker/bench/contest"
	"github.com/clustermutex/unlocker/bench/servers"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

// etcdContestants returns contestants that all use the same server.
func etcdContestants(etcd *servers.Process) []contest.Contestant {
	contestant := func(name string, exclusive bool, client func(context.Context, *clientv3.Client,
		*ends) (contest.Client, error)) contest.Contestant {
		return contest.Contestant{
			Name: name, Exclusive: exclusive, Counters: etcdCounters(etcd),
			Connect: func(context.Context) (contest.Connection, error) {
				c, err := servers.EtcdClient(etcd.Addr)
				if err != nil {
					return nil, err
				}
				return &etcdConnection{etcd: c, client: client}, nil
			},
		}
	}
	return []contest.Contestant{
		ours(etcd, us, 0),
		ours(etcd, "ours, called 25 deep", 25),
		contestant("raw put and delete", false, func(_ context.Context, c *clientv3.Client,
			_ *ends) (contest.Client, error) {
			return raw{c}, nil
		}),
		contestant("etcd Mutex, session shared", true, sharedSession),
		contestant("etcd Mutex, session per lock", true, func(_ context.Context, c *clientv3.Client,
			_ *ends) (contest.Client, error) {
			return sessionPerLock{c}, nil
		}),
		contestant("etcd lock RPC", true, lockRPC),
		contestant(bare, false, newBare),
	}
}

func etcdCounters(etcd *servers.Process) func(context.Context) (contest.Counters, error) {
	return func(ctx context.Context) (contest.Counters, error) {
		n, err := servers.ReadEtcd(ctx, etcd.Addr)
		if err != nil {
			return contest.Counters{}, err
		}
		cpu, err := etcd.CPU()
		return contest.Counters{Requests: n.Requests, Watches: n.Watches, Told: n.Told, Commits: n.Commits,
			CPU: cpu.Seconds()}, err
	}
}

// ours is our client library with all defaults: the record with owner, host, purpose and backtrace, the queue, the
// local deadline, and the watch of longer holds. A backtrace has a line per call, up to 30, so there is a contestant
// with few, as in a small program, and one with as many as behind a web framework.
func ours(etcd *servers.Process, name string, depth int) contest.Contestant {
	return contest.Contestant{
		Name: name, Exclusive: true, Counters: etcdCounters(etcd),
		Connect: func(context.Context) (contest.Connection, error) {
			c, err := servers.EtcdClient(etcd.Addr)
			if err != nil {
				return nil, err
			}
			locks, err := mutex.New(c, mutex.Options{Owner: "bench"})
			return &ourConnection{c, locks, depth}, err
		},
	}
}

type ourConnection struct {
	etcd  *clientv3.Client
	locks *mutex.Client
	depth int
}

func (c *ourConnection) Client(context.Context) (contest.Client, error) { return c, nil }

func (c *ourConnection) Lock(ctx context.Context, name string) (func() error, error) {
	return c.lock(ctx, name, c.depth)
}

func (c *ourConnection) lock(ctx context.Context, name string, depth int) (func() error, error) {
	if depth > 0 {
		return c.lock(ctx, name, depth-1)
	}
	l, err := c.locks.Lock(ctx, name, mutex.Purpose("send the invoices of the month"))
	if err != nil {
		return nil, err
	}
	return l.Unlock, nil
}

func (c *ourConnection) Close() error {
	c.locks.Close()
	return c.etcd.Close()
}

// etcdConnection makes the clients of other contestants.
type etcdConnection struct {
	etcd   *clientv3.Client
	client func(context.Context, *clientv3.Client, *ends) (contest.Client, error)
	ends   ends
}

func (c *etcdConnection) Client(ctx context.Context) (contest.Client, error) {
	return c.client(ctx, c.etcd, &c.ends)
}

func (c *etcdConnection) Close() error {
	c.ends.all()
	return c.etcd.Close()
}

// ends is what to do when a connection is closed.
type ends struct{ list []func() }

func (e *ends) all() {
	var all sync.WaitGroup
	for _, end := range e.list {
		all.Go(end)
	}
	all.Wait()
}

// raw writes one key and deletes it: the minimum for any lock in etcd with two commits.
type raw struct{ etcd *clientv3.Client }

func (r raw) Lock(ctx context.Context, name string) (func() error, error) {
	key := "/raw/" + name
	if _, err := r.etcd.Put(ctx, key, "x"); err != nil {
		return nil, err
	}
	return func() error {
		_, err := r.etcd.Delete(context.Background(), key)
		return err
	}, nil
}

// sharedSession is etcd's own recipe as intended: one lease for the life of the client. The lease is part of the key,
// so clients that compete for one lock need one each.
func sharedSession(ctx context.Context, etcd *clientv3.Client, e *ends) (contest.Client, error) {
	s, err := concurrency.NewSession(etcd)
	if err != nil {
		return nil, err
	}
	e.list = append(e.list, func() { s.Close() })
	return session{s}, nil
}

type session struct{ *concurrency.Session }

func (s session) Lock(ctx context.Context, name string) (func() error, error) {
	m := concurrency.NewMutex(s.Session, "/etcd/"+name)
	if err := m.Lock(ctx); err != nil {
		return nil, err
	}
	return func() error { return m.Unlock(context.Background()) }, nil
}

// sessionPerLock is etcd's recipe as it is often used: with a lease per lock.
type sessionPerLock struct{ etcd *clientv3.Client }

func (p sessionPerLock) Lock(ctx context.Context, name string) (func() error, error) {
	s, err := concurrency.NewSession(p.etcd)
	if err != nil {
		return nil, err
	}
	m := concurrency.NewMutex(s, "/etcd/"+name)
	if err := m.Lock(ctx); err != nil {
		s.Close()
		return nil, err
	}
	return func() error {
		if err := m.Unlock(context.Background()); err != nil {
			return err
		}
		return s.Close()
	}, nil
}

// lockRPC is etcd's lock service: the same recipe, run by the server. The lease is the client's.
func lockRPC(ctx context.Context, etcd *clientv3.Client, e *ends) (contest.Client, error) {
	grant, err := etcd.Grant(ctx, 60)
	if err != nil {
		return nil, err
	}
	alive, err := etcd.KeepAlive(context.Background(), grant.ID)
	if err != nil {
		return nil, err
	}
	go func() {
		for range alive { // unread answers would be logged as warnings
		}
	}()
	e.list = append(e.list, func() { _, _ = etcd.Revoke(context.Background(), grant.ID) })
	return lockService{v3lockpb.NewLockClient(etcd.ActiveConnection()), int64(grant.ID)}, nil
}

type lockService struct {
	service v3lockpb.LockClient
	lease   int64
}

func (s lockService) Lock(ctx context.Context, name string) (func() error, error) {
	r, err := s.service.Lock(ctx, &v3lockpb.LockRequest{Name: []byte("/rpc/" + name), Lease: s.lease})
	if err != nil {
		return nil, err
	}
	return func() error {
		_, err := s.service.Unlock(context.Background(), &v3lockpb.UnlockRequest{Key: r.Key})
		return err
	}, nil
}
