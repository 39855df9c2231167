package servers

import (
	"context"
	"fmt"
	"os/exec"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/clustermutex/unlocker/internal/testkit/etcdembed"
	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

// EtcdOptions change a member from the usual.
type EtcdOptions struct {
	Quota   int64         // bytes that the store may grow to
	Gateway bool          // serve the JSON gateway, too
	Flush   time.Duration // extra time for each flush of its log, as on a slower disk
}

// Etcd runs one etcd member in the version of go.mod, as this program again, which has to call etcdtest.Member first.
// It flushes its log as in production.
func Etcd(ctx context.Context, dir string, o EtcdOptions) (*Process, error) {
	dir, err := makeDir(dir, "etcd")
	if err != nil {
		return nil, err
	}
	client, err := proctest.FindAddr()
	if err != nil {
		return nil, err
	}
	peer, err := proctest.FindAddr()
	if err != nil {
		return nil, err
	}
	cmd, err := etcdtest.MemberCommand(etcdembed.Config{Dir: dir + "/data", Client: client, Peer: peer, Quota: o.Quota,
		Gateway: o.Gateway})
	if err != nil {
		return nil, err
	}
	if o.Flush > 0 {
		if err := slowFlush(cmd, o.Flush); err != nil {
			return nil, err
		}
	}
	return start(ctx, "etcd", client, dir, cmd, func(ctx context.Context) error {
		c, err := EtcdClient(client)
		if err != nil {
			return err
		}
		defer c.Close()
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		_, err = c.Get(ctx, "ready")
		return err
	})
}

// slowFlush has each fdatasync of a program take longer. It is stopped at that call only, and is the process that is
// started: its tracer is another one.
func slowFlush(cmd *exec.Cmd, by time.Duration) error {
	strace, err := exec.LookPath("strace")
	if err != nil {
		return fmt.Errorf("a slower disk: %w", err)
	}
	delay := fmt.Sprintf("inject=fdatasync:delay_exit=%d", by.Microseconds())
	cmd.Args = append([]string{strace, "-D", "-f", "-qqq", "--seccomp-bpf", "-o", "/dev/null", "-e", "trace=fdatasync",
		"-e", delay}, cmd.Args...)
	cmd.Path = strace
	return nil
}

// EtcdClient is configured as in our programs: without hidden retries, and with keepalives.
func EtcdClient(addr string) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{
		Endpoints: []string{addr}, MaxUnaryRetries: 1, Logger: zap.NewNop(),
		DialTimeout: 5 * time.Second, DialKeepAliveTime: 10 * time.Second, DialKeepAliveTimeout: 5 * time.Second,
	})
}
