package servers

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime/pprof"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/clustermutex/unlocker/internal/testkit/etcdembed"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

// memberVariable is the environment variable that passes the configuration to a member's process.
const memberVariable = "BENCH_ETCD"

// Main must be called first by every program that uses Etcd. In a process that Etcd started, it runs the member and
// does not return.
func Main() {
	config, isMember := os.LookupEnv(memberVariable)
	if !isMember {
		return
	}
	if err := member(config); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func member(config string) error {
	var c memberConfig
	if err := json.Unmarshal([]byte(config), &c); err != nil {
		return err
	}
	if c.Profile != "" {
		f, err := os.Create(c.Profile)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	etcd, err := etcdembed.Start(ctx, c.Config)
	if err != nil {
		return err
	}
	defer etcd.Stop()
	select {
	case <-ctx.Done():
		return nil
	case <-etcd.Done():
		return fmt.Errorf("etcd stopped by itself")
	}
}

// EtcdOptions change a member from the usual.
type EtcdOptions struct {
	Quota   int64         // bytes that the store may grow to
	Profile string        // prefix of a file for the CPU profile, which is written when the member is stopped
	Gateway bool          // serve the JSON gateway, too
	Flush   time.Duration // extra time for each flush of its log, as on a slower disk
}

type memberConfig struct {
	etcdembed.Config
	Profile string
}

// Etcd runs one etcd member, as this program again, in the version of go.mod. It flushes its log as in production.
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
	c := memberConfig{Config: etcdembed.Config{Dir: dir + "/data", Client: client, Peer: peer, Quota: o.Quota,
		Gateway: o.Gateway}}
	if o.Profile != "" {
		if c.Profile, err = filepath.Abs(o.Profile + "etcd.pprof"); err != nil {
			return nil, err
		}
	}
	config, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self)
	if o.Flush > 0 {
		if cmd, err = slowFlush(o.Flush, self); err != nil {
			return nil, err
		}
	}
	cmd.Env = append(os.Environ(), memberVariable+"="+string(config))
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

// slowFlush runs a program of which each fdatasync takes longer. It is stopped at that call only, and is the process
// that is started: its tracer is another one.
func slowFlush(by time.Duration, program string) (*exec.Cmd, error) {
	strace, err := exec.LookPath("strace")
	if err != nil {
		return nil, fmt.Errorf("a slower disk: %w", err)
	}
	delay := fmt.Sprintf("inject=fdatasync:delay_exit=%d", by.Microseconds())
	return exec.Command(strace, "-D", "-f", "-qqq", "--seccomp-bpf", "-o", "/dev/null", "-e", "trace=fdatasync", "-e",
		delay, program), nil
}

// EtcdClient is configured as in our programs: without hidden retries, and with keepalives.
func EtcdClient(addr string) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{
		Endpoints: []string{addr}, MaxUnaryRetries: 1, Logger: zap.NewNop(),
		DialTimeout: 5 * time.Second, DialKeepAliveTime: 10 * time.Second, DialKeepAliveTimeout: 5 * time.Second,
	})
}
