package main

import (
	"context"
	"math"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/clustermutex/unlocker/bench/contest"
	"github.com/clustermutex/unlocker/bench/servers"
)

// zookeeperContestant is the lock recipe of the usual Go library: an ephemeral sequential node per waiter, which
// watches the one before it.
func zookeeperContestant(server *servers.Process) contest.Contestant {
	return contest.Contestant{
		Name: "ZooKeeper", Exclusive: true,
		Connect: func(context.Context) (contest.Connection, error) {
			c, _, err := zk.Connect([]string{server.Addr}, 30*time.Second, zk.WithLogInfo(false),
				zk.WithLogger(silent{}))
			return &zookeeper{c}, err
		},
		Counters: func(context.Context) (contest.Counters, error) {
			received, logged, err := servers.ZooKeeperCounts(server.Addr)
			if err != nil {
				return contest.Counters{}, err
			}
			cpu, err := server.CPU()
			return contest.Counters{Requests: received, Watches: math.NaN(), Told: math.NaN(),
				Commits: logged, CPU: cpu.Seconds()}, err
		},
	}
}

type zookeeper struct{ zk *zk.Conn }

func (z *zookeeper) Client(context.Context) (contest.Client, error) { return z, nil }

// Lock cannot be cancelled: clients that wait at the end of a turn get the lock once more.
func (z *zookeeper) Lock(_ context.Context, name string) (func() error, error) {
	l := zk.NewLock(z.zk, "/locks/"+name, zk.WorldACL(zk.PermAll))
	return l.Unlock, l.Lock()
}

func (z *zookeeper) Close() error {
	z.zk.Close()
	return nil
}

type silent struct{}

func (silent) Printf(string, ...any) {}
