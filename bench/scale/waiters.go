package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/bench/contest"
	"github.com/clustermutex/unlocker/bench/servers"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

const (
	waitingClients = 400
	queues         = 200 // locks that are waited for
	eachWaits      = 20  // by so many, each in a client of its own
)

// waiters measures what waiters cost etcd, and how many of them get their lock a second once the holders release.
func (c *crowd) waiters(ctx context.Context, f figures) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	clients, closeAll, err := c.clients()
	if err != nil {
		return err
	}
	defer closeAll()
	held, err := takeQueues(ctx, clients)
	if err != nil {
		return err
	}
	before, err := c.server.Memory()
	if err != nil {
		return err
	}
	var served atomic.Int64
	var waits sync.WaitGroup
	for i := range queues * eachWaits {
		waits.Go(func() {
			if takeTurn(ctx, clients[i%waitingClients], queue(i%queues)) == nil {
				served.Add(1)
			}
		})
	}
	if err := c.allWait(ctx); err != nil {
		return err
	}
	full, err := c.server.Memory()
	if err != nil {
		return err
	}
	f["waiter memory"] = float64(full-before) / (queues * eachWaits)
	began := time.Now()
	for _, l := range held {
		if err := l.Unlock(); err != nil {
			return err
		}
	}
	waits.Wait()
	if n := served.Load(); n != queues*eachWaits {
		return fmt.Errorf("%d of %d waiters got their lock", n, queues*eachWaits)
	}
	f["served"] = queues * eachWaits / time.Since(began).Seconds()
	return nil
}

// allWait returns when every waiter has its ticket in the queue, and each queue its tail.
func (c *crowd) allWait(ctx context.Context) error {
	for {
		r, err := c.etcd.Get(ctx, c.layout.Queues(), clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err != nil || r.Count == queues*(eachWaits+1) {
			return err
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func queue(i int) string { return fmt.Sprintf("queues/%03d", i) }

// clients returns clients with a connection each.
func (c *crowd) clients() (clients []*mutex.Client, closeAll func(), err error) {
	var closers []func() error
	closeAll = func() {
		for _, c := range closers {
			_ = c() // what is left ends with the etcd
		}
	}
	for i := range waitingClients {
		etcd, err := servers.EtcdClient(c.server.Addr)
		if err != nil {
			return nil, closeAll, err
		}
		client, err := mutex.New(etcd, mutex.Options{Owner: fmt.Sprintf("service-%02d", i%50)})
		if err != nil {
			return nil, closeAll, err
		}
		clients = append(clients, client)
		closers = append(closers, client.Close, etcd.Close)
	}
	return clients, closeAll, nil
}

// takeQueues takes the locks that others will wait for.
func takeQueues(ctx context.Context, clients []*mutex.Client) ([]*mutex.Lock, error) {
	held := make([]*mutex.Lock, queues)
	err := contest.Each(queues, func(i int) (err error) {
		held[i], err = clients[i].Lock(ctx, queue(i))
		return err
	})
	return held, err
}

func takeTurn(ctx context.Context, client *mutex.Client, lock string) error {
	l, err := client.Lock(ctx, lock)
	if err != nil {
		return err
	}
	return l.Unlock()
}
