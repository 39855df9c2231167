package daemon_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/daemon"
)

// scene makes this test binary a program of daemon.Main.
const scene = "DAEMON_TEST_SCENE"

func TestMain(m *testing.M) {
	play, known := map[string]func(context.Context) error{
		"well":   func(context.Context) error { return nil },
		"broken": func(context.Context) error { return errors.New("the disk is gone") },
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
	}[os.Getenv(scene)]
	if known {
		os.Exit(daemon.Main("unlocker", play))
	}
	os.Exit(m.Run())
}

func program(t *testing.T, name string) (*exec.Cmd, *strings.Builder) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	stderr := &strings.Builder{}
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), scene+"="+name)
	cmd.Stderr = stderr
	cmd.WaitDelay = 10 * time.Second
	return cmd, stderr
}

func TestExitStatusAndSentence(t *testing.T) {
	for name, want := range map[string]struct {
		code   int
		stderr string
	}{
		"well":    {0, ""},
		"broken":  {1, "unlocker: the disk is gone\n"},
		"misused": {2, "unlocker: check: no such policy\n"},
	} {
		cmd, stderr := program(t, name)
		_ = cmd.Run()
		if code := cmd.ProcessState.ExitCode(); code != want.code || stderr.String() != want.stderr {
			t.Errorf("%s: status %d and %q, want %d and %q", name, code, stderr, want.code, want.stderr)
		}
	}
}

func TestFirstSignalAsksAndTheSecondEnds(t *testing.T) {
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
			cmd, stderr := program(t, name)
			stdout, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			lines := bufio.NewScanner(stdout)
			for i, line := range want.says {
				if !lines.Scan() || lines.Text() != line {
					t.Errorf("it says %q, want %q", lines.Text(), line)
				}
				if i < len(want.signals) {
					if err := cmd.Process.Signal(want.signals[i]); err != nil {
						t.Fatal(err)
					}
				}
			}
			_ = cmd.Wait()
			if code := cmd.ProcessState.ExitCode(); code != want.code {
				t.Errorf("status %d, want %d; stderr %q", code, want.code, stderr)
			}
		})
	}
}
