package daemon_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"testing"

	"github.com/clustermutex/unlocker/internal/daemon"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

// scene makes this test binary a program of daemon.Main.
const scene = "DAEMON_TEST_SCENE"

func TestMain(m *testing.M) {
	play, known := map[string]func(context.Context) error{
		"well":   func(context.Context) error { return nil },
		"broken": func(context.Context) error { return errors.New("disks:\n  a is gone\n  b is full\nbye") },
		"misused": func(context.Context) error {
			return fmt.Errorf("check: %w", daemon.Usage(errors.New("no such policy")))
		},
		"orderly": func(ctx context.Context) error {
			fmt.Println("running")
			<-ctx.Done()
			fmt.Println("stopping because of", context.Cause(ctx))
			return nil
		},
		"signalled": func(context.Context) error {
			signals := make(chan os.Signal, 1)
			signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
			for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGTERM, syscall.SIGINT} {
				if err := syscall.Kill(os.Getpid(), s); err != nil {
					return err
				}
				<-signals
			}
			select {}
		},
	}[os.Getenv(scene)]
	if known {
		os.Exit(daemon.Main("unlocker", play))
	}
	os.Exit(m.Run())
}

func TestExitStatusAndSentence(t *testing.T) {
	for name, want := range map[string]struct {
		code   int
		stderr string
	}{
		"well":    {0, ""},
		"broken":  {1, "unlocker: disks: a is gone; b is full; bye\n"},
		"misused": {2, "unlocker: check: no such policy\n"},
		// As by timeout(1), whose second SIGTERM is not the operator's.
		"signalled": {1, "unlocker: second signal (interrupt): exiting without waiting for requests in flight\n"},
	} {
		got := proctest.Run(t, proctest.Self(scene, name))
		if got.Code != want.code || got.Stderr != want.stderr {
			t.Errorf("%s: status %d and %q, want %d and %q", name, got.Code, got.Stderr, want.code, want.stderr)
		}
	}
}

func TestFirstSignalStops(t *testing.T) {
	p := proctest.Start(t, proctest.Self(scene, "orderly"))
	if got := p.NextLine(t); got != "running" {
		t.Errorf("it says %q", got)
	}
	proctest.Must(t, p.Signal(syscall.SIGTERM))
	if got := p.NextLine(t); got != "stopping because of signal: terminated" || p.Wait(t) != 0 {
		t.Errorf("it says %q, and ends with status %d", got, p.Wait(t))
	}
}
