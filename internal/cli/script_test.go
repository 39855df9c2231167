package cli_test

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/rs/zerolog"

	"github.com/clustermutex/unlocker/internal/cli"
	"github.com/clustermutex/unlocker/internal/cli/childproc"
	"github.com/clustermutex/unlocker/internal/daemon"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

func TestMain(m *testing.M) {
	proctest.Overlap()
	testscript.Main(m, map[string]func(){"mutexctl": mutexctl})
}

// mutexctl is cmd/mutexctl.
func mutexctl() {
	os.Exit(cli.Main(context.Background(), cli.Process{
		Args: os.Args[1:], Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Now: time.Now,
		Log: func(level, format string) zerolog.Logger {
			return daemon.Logger(daemon.LogSettings{Level: level, Format: format}, os.Stderr)
		},
	}))
}

// hearSignals makes processes of the tests receive signals, however the tests were started: nohup makes its command
// ignore HUP, and a shell without job control makes its background commands ignore INT and QUIT.
func hearSignals() {
	for _, s := range []os.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT} {
		if signal.Ignored(s) {
			signal.Notify(make(chan os.Signal, 1), s)
		}
	}
}

// TestScripts runs the scripts in testdata, each with its own prefix in one real etcd. They have the commands of
// testscript and of world.
func TestScripts(t *testing.T) {
	t.Parallel()
	hearSignals()
	server := etcdtest.Start(t)
	client := server.Client(t)
	testscript.Run(t, testscript.Params{
		Dir: "testdata",
		Setup: func(e *testscript.Env) error {
			w, err := newWorld(e, client)
			if err != nil {
				return err
			}
			e.Values[worldKey{}] = w
			e.Setenv("MUTEXCTL_ETCD_ENDPOINTS", server.Endpoint())
			e.Setenv("ENDPOINT", server.Endpoint())
			e.Setenv("MUTEXCTL_LOCKS_PREFIX", w.layout.Prefix())
			e.Setenv("USER", "ann")
			e.Setenv("GORACE", "atexit_sleep_ms=0") // else each command takes a second with the race detector
			e.Setenv("FAULT", os.Getenv("FAULT"))   // see test/mutants
			e.Defer(w.end)
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"put":        in((*world).put),
			"leased":     in((*world).leased),
			"unlocker":   in((*world).unlocker),
			"stated":     in((*world).stated),
			"asked":      in((*world).asked),
			"lock":       in((*world).lock),
			"start":      in((*world).start),
			"console":    in((*world).console),
			"keys":       in((*world).keys),
			"signal":     in((*world).signal),
			"finish":     in((*world).finish),
			"etcd":       in((*world).etcd),
			"status":     status,
			"eventually": eventually,
		},
		Condition: condition,
	})
}

// condition tells scripts whether a command may have a cgroup here.
func condition(name string) (bool, error) {
	if name != "cgroups" {
		return false, fmt.Errorf("there is no condition %q", name)
	}
	group, err := childproc.NewGroup("test")
	group.Close()
	return err == nil, nil
}

// TestScriptsOfUsers runs the scripts in testdata/rights in an etcd where a reader and a writer have permissions on one
// prefix.
func TestScriptsOfUsers(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t, etcdtest.Auth())
	server.AddUser(t, "reader", "secret", protocol.DefaultPrefix, etcdtest.Read)
	server.AddUser(t, "writer", "secret", protocol.DefaultPrefix, etcdtest.ReadWrite)
	testscript.Run(t, testscript.Params{
		Dir: "testdata/rights",
		Setup: func(e *testscript.Env) error {
			e.Setenv("MUTEXCTL_ETCD_ENDPOINTS", server.Endpoint())
			e.Setenv("MUTEXCTL_LOG_LEVEL", "error") // the password goes without TLS
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"status": status},
	})
}

// TestScriptsOnAFullEtcd runs the scripts in testdata/full as a read-only user of an etcd that is out of space.
func TestScriptsOnAFullEtcd(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t, etcdtest.Auth(), etcdtest.Quota(4<<20))
	server.AddUser(t, "reader", "secret", protocol.DefaultPrefix, etcdtest.Read)
	server.Fill(t, "/elsewhere/")
	testscript.Run(t, testscript.Params{
		Dir: "testdata/full",
		Setup: func(e *testscript.Env) error {
			e.Setenv("MUTEXCTL_ETCD_ENDPOINTS", server.Endpoint())
			e.Setenv("MUTEXCTL_ETCD_USER", "reader")
			e.Setenv("MUTEXCTL_ETCD_PASSWORD", "secret")
			e.Setenv("MUTEXCTL_LOG_LEVEL", "error")
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"status": status},
	})
}
