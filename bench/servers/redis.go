package servers

import (
	"context"
	"os/exec"

	"github.com/redis/go-redis/v9"

	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

// Redis runs a Redis server. With flush it writes every change to its log, and the log to the disk, before it answers;
// without, it keeps everything in memory, and a crash of the server forgets all locks.
func Redis(ctx context.Context, dir string, flush bool) (*Process, error) {
	program, err := need("redis-server", "redis-server")
	if err != nil {
		return nil, err
	}
	name := "redis"
	persistence := []string{"--appendonly", "no"}
	if flush {
		name = "redis-fsync"
		persistence = []string{"--appendonly", "yes", "--appendfsync", "always"}
	}
	dir, err = makeDir(dir, name)
	if err != nil {
		return nil, err
	}
	addr, err := proctest.FindAddr()
	if err != nil {
		return nil, err
	}
	args := append([]string{"--bind", "127.0.0.1", "--port", port(addr), "--dir", dir, "--save", "", "--daemonize",
		"no"}, persistence...)
	return start(ctx, name, addr, dir, exec.Command(program, args...), func(ctx context.Context) error {
		c := RedisClient(addr)
		defer c.Close()
		return c.Ping(ctx).Err()
	})
}

// RedisClient returns a client with the library's defaults, including a connection pool.
func RedisClient(addr string) *redis.Client {
	return redis.NewClient(&redis.Options{Addr: addr})
}
