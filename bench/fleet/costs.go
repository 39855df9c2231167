package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/bench/contest"
	"github.com/clustermutex/unlocker/bench/servers"
	"github.com/clustermutex/unlocker/internal/locktxn"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

// costs are what locks cost a cluster.
type costs struct {
	extend, hold time.Duration // of its time: an extension; a lock and its release
	floor        time.Duration // from request to answer when nobody else is there, median
	store        int64         // bytes of the store, for a lock that is held
	memory       int64         // bytes of etcd's memory for it, with the watch of its holder
	connection   int64         // bytes of etcd's memory for a connected client
	unlocker     int64         // bytes of an unlocker's memory for a lock: docs/benchmarks.md, "Very many locks"
	read         float64       // locks that an unlocker reads a second when it starts: also from there
}

func (c costs) String() string {
	return fmt.Sprintf("- measured: %.0f extensions a second, %.0f locks and releases a second, an answer in %.2f ms, "+
		"%d bytes of store and %d bytes of memory for each lock, %d KiB of memory for each client\n"+
		"- from make bench-scale: %d bytes of an unlocker's memory for each lock, %.0f locks a second read at its "+
		"start\n",
		1/c.extend.Seconds(), 1/c.hold.Seconds(), c.floor.Seconds()*1000, c.store, c.memory, c.connection/1024,
		c.unlocker, c.read)
}

const (
	measuredClients = 400
	measuredLocks   = 20_000
	workers         = 64
	measuredFor     = 5 * time.Second
)

// bench is an etcd with clients.
type bench struct {
	server  *servers.Process
	etcd    []*clientv3.Client
	clients []*mutex.Client
}

// measure finds the costs with one etcd on this machine. Its clients share the machine with it, so an etcd that has one
// for itself does better.
func measure(ctx context.Context, dir string) (c costs, err error) {
	c = costs{unlocker: 910, read: 37_000}
	server, err := servers.Etcd(ctx, dir, servers.EtcdOptions{Quota: 8 << 30})
	if err != nil {
		return c, err
	}
	defer server.Stop()
	b := &bench{server: server}
	defer b.close()
	empty, err := server.Memory()
	if err != nil {
		return c, err
	}
	connected, err := b.connect(ctx)
	if err != nil {
		return c, err
	}
	c.connection = max(0, connected-empty) / measuredClients
	progress("connected")
	held, err := b.hold(ctx)
	if err != nil {
		return c, err
	}
	progress("locks are held")
	full, err := server.Memory()
	if err != nil {
		return c, err
	}
	c.memory = max(0, full-connected) / measuredLocks
	status, err := b.etcd[0].Status(ctx, server.Addr)
	if err != nil {
		return c, err
	}
	c.store = status.DbSizeInUse / (measuredLocks + measuredClients)
	if c.floor, err = b.alone(ctx); err != nil {
		return c, err
	}
	progress("alone")
	if c.extend, err = b.saturate(ctx, b.extender(held)); err != nil {
		return c, err
	}
	progress("extended")
	c.hold, err = b.saturate(ctx, b.locker())
	return c, err
}

// progress tells that a part of the measurement is done.
func progress(what string) {
	fmt.Fprintf(os.Stderr, "measured: %s (load %.1f)\n", what, contest.Load())
}

func (b *bench) close() {
	for _, c := range b.clients {
		_ = c.Close() // what is held ends with the etcd
	}
	for _, c := range b.etcd {
		_ = c.Close()
	}
}

// connect connects clients that hold a lock each, and returns etcd's memory then.
func (b *bench) connect(ctx context.Context) (memory int64, err error) {
	for i := range measuredClients {
		etcd, err := servers.EtcdClient(b.server.Addr)
		if err != nil {
			return 0, err
		}
		b.etcd = append(b.etcd, etcd)
		client, err := mutex.New(etcd, mutex.Options{Owner: fmt.Sprintf("service-%02d", i%50)})
		if err != nil {
			return 0, err
		}
		b.clients = append(b.clients, client)
		if _, err := client.Lock(ctx, fmt.Sprintf("fleet/client-%d", i), long()...); err != nil {
			return 0, err
		}
	}
	return b.server.Memory()
}

// long are the options of a hold that outlasts the measurement.
func long() []mutex.Option {
	return []mutex.Option{mutex.AlertAfter(time.Hour), mutex.AutoUnlockAfter(2 * time.Hour), mutex.Purpose("nightly")}
}

// hold takes many locks, from all clients.
func (b *bench) hold(ctx context.Context) ([]*mutex.Lock, error) {
	held := make([]*mutex.Lock, measuredLocks)
	var next atomic.Int64
	err := contest.Each(workers, func(int) error {
		for i := next.Add(1) - 1; i < measuredLocks; i = next.Add(1) - 1 {
			l, err := b.clients[i%measuredClients].Lock(ctx, fmt.Sprintf("fleet/tenant-%07d/nightly", i), long()...)
			if err != nil {
				return err
			}
			held[i] = l
		}
		return nil
	})
	return held, err
}

// alone returns the median time of an answer to a client that has etcd for itself.
func (b *bench) alone(ctx context.Context) (time.Duration, error) {
	var took []time.Duration
	for range 200 {
		began := time.Now()
		l, err := b.clients[0].Lock(ctx, "fleet/alone", long()...)
		if err != nil {
			return 0, err
		}
		took = append(took, time.Since(began))
		if err := l.Unlock(); err != nil {
			return 0, err
		}
	}
	slices.Sort(took)
	return took[len(took)/2], nil
}

// saturate lets many workers do the same for a while, and returns what each time took of etcd.
func (b *bench) saturate(ctx context.Context, do func(ctx context.Context, worker int) error) (time.Duration, error) {
	var done atomic.Int64
	began := time.Now()
	err := contest.Each(workers, func(worker int) error {
		for time.Since(began) < measuredFor {
			if err := do(ctx, worker); err != nil {
				return err
			}
			done.Add(1)
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	return time.Since(began) / time.Duration(max(1, done.Load())), nil
}

func (b *bench) locker() func(context.Context, int) error {
	return func(ctx context.Context, worker int) error {
		l, err := b.clients[worker].Lock(ctx, fmt.Sprintf("fleet/worker-%d", worker), long()...)
		if err != nil {
			return err
		}
		return l.Unlock()
	}
}

// extender extends one lock after the other, with the transaction of the library, which by itself would not do it as
// often.
func (b *bench) extender(held []*mutex.Lock) func(context.Context, int) error {
	var next atomic.Int64
	return func(ctx context.Context, worker int) error {
		layout, err := protocol.NewLayout(protocol.DefaultPrefix)
		if err != nil {
			return err
		}
		l := held[int(next.Add(1))%len(held)]
		by := metadata.FormatTime(time.Now().Add(3 * time.Hour))
		hold := locktxn.Hold{Lock: l.Name(), UUID: l.UUID(), Token: l.Token()}
		txn := locktxn.Alive(layout, hold, by, by, metadata.FormatAlive(time.Now(), "shard 7 of 9"))
		r, err := txn.Commit(ctx, b.etcd[worker])
		if err != nil {
			return err
		}
		if !r.Succeeded {
			return fmt.Errorf("lock %q could not be extended", l.Name())
		}
		return nil
	}
}
