package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"

	"github.com/clustermutex/unlocker/bench/contest"
	"github.com/clustermutex/unlocker/bench/servers"
)

// redisLife is the time to live of a lock in Redis: long enough that none expires during a turn.
const redisLife = time.Minute

// redisContestants are the two usual libraries on one server. Redis does not notify waiters, so they poll:
// redislock with its shortest recommended pause, doubled up to a quarter of a second; redsync with its default of 50 to
// 250 ms, but without its limit of 32 attempts.
func redisContestants(server *servers.Process, suffix string) []contest.Contestant {
	contestant := func(name string, client func(*redis.Client) contest.Client) contest.Contestant {
		return contest.Contestant{
			Name: name + suffix, Exclusive: true, Counters: redisCounters(server),
			Connect: func(context.Context) (contest.Connection, error) {
				c := servers.RedisClient(server.Addr)
				return &redisConnection{c, client}, nil
			},
		}
	}
	return []contest.Contestant{
		contestant("redislock", func(c *redis.Client) contest.Client { return bsm{redislock.New(c)} }),
		contestant("redsync", func(c *redis.Client) contest.Client { return sync1{redsync.New(goredis.NewPool(c))} }),
	}
}

type redisConnection struct {
	redis  *redis.Client
	client func(*redis.Client) contest.Client
}

func (c *redisConnection) Client(context.Context) (contest.Client, error) {
	return c.client(c.redis), nil
}
func (c *redisConnection) Close() error { return c.redis.Close() }

type bsm struct{ locks *redislock.Client }

func (b bsm) Lock(ctx context.Context, name string) (func() error, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Hour) // otherwise it gives up after the time to live
	defer cancel()
	retry := redislock.ExponentialBackoff(16*time.Millisecond, 256*time.Millisecond)
	l, err := b.locks.Obtain(ctx, name, redisLife, &redislock.Options{RetryStrategy: retry})
	if err != nil {
		return nil, err
	}
	return func() error { return l.Release(context.Background()) }, nil
}

// sync1 is redsync on one server, like all other contestants.
type sync1 struct{ locks *redsync.Redsync }

func (s sync1) Lock(ctx context.Context, name string) (func() error, error) {
	m := s.locks.NewMutex(name, redsync.WithExpiry(redisLife), redsync.WithTries(math.MaxInt))
	if err := m.LockContext(ctx); err != nil {
		return nil, err
	}
	return func() error {
		ok, err := m.UnlockContext(context.Background())
		if err == nil && !ok {
			err = errors.New("the lock was no longer held")
		}
		return err
	}, nil
}

// redisCounters counts the commands that the server ran.
func redisCounters(server *servers.Process) func(context.Context) (contest.Counters, error) {
	c := servers.RedisClient(server.Addr) // for as long as the program runs
	return func(ctx context.Context) (contest.Counters, error) {
		info, err := c.Info(ctx, "stats").Result()
		if err != nil {
			return contest.Counters{}, err
		}
		for line := range strings.Lines(info) {
			if value, ok := strings.CutPrefix(strings.TrimSpace(line), "total_commands_processed:"); ok {
				n, err := strconv.ParseFloat(value, 64)
				if err != nil {
					return contest.Counters{}, err
				}
				cpu, err := server.CPU()
				return contest.Counters{Requests: n, Watches: math.NaN(), Told: math.NaN(),
					Commits: math.NaN(), CPU: cpu.Seconds()}, err
			}
		}
		return contest.Counters{}, fmt.Errorf("no number of processed commands in the answer of Redis")
	}
}
