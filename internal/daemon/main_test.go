package daemon_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
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
		"stubborn": func(ctx context.Context) error {
			fmt.Println("running")
			<-ctx.Done()
			fmt.Println("stopping")
			select {}
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
		"signalled": {1, "unlocker: second signal (interrupt): ended without finishing what was in flight\n"},
	} {
		got := proctest.Run(t, proctest.Self(scene, name))
		if got.Code != want.code || got.Stderr != want.stderr {
			t.Errorf("%s: status %d and %q, want %d and %q", name, got.Code, got.Stderr, want.code, want.stderr)
		}
	}
}

func TestFirstSignalStopsAndSecondKills(t *testing.T) {
	for name, want := range map[string]struct {
		signals []syscall.Signal
		code    int
		says    []string
	}{
		"orderly": {[]syscall.Signal{syscall.SIGTERM}, 0,
			[]string{"running", "stopping because of signal: terminated"}},
		"stubborn": {[]syscall.Signal{syscall.SIGINT, syscall.SIGTERM}, 1, []string{"running", "stopping"}},
	} {
		t.Run(name, func(t *testing.T) {
			var stderr strings.Builder
			cmd := proctest.Self(scene, name)
			cmd.Stderr = &stderr
			p := proctest.Start(t, cmd)
			for i, line := range want.says {
				if got := p.NextLine(t); got != line {
					t.Errorf("it says %q, want %q", got, line)
				}
				if i < len(want.signals) {
					proctest.Must(t, p.Signal(want.signals[i]))
				}
			}
			if code := p.Wait(t); code != want.code {
				t.Errorf("status %d, want %d; stderr %q", code, want.code, stderr.String())
			}
		})
	}
}
