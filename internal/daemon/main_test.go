package daemon_test

import (
	"context"
	"encoding/json"
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
const (
	scene  = "DAEMON_TEST_SCENE"
	format = "DAEMON_TEST_FORMAT"
)

func TestMain(m *testing.M) {
	play, known := map[string]func(context.Context) error{
		"well":   func(context.Context) error { return nil },
		"broken": func(context.Context) error { return errors.New("disks:\n  a is gone\n  b is full\nbye") },
		"misused": func(context.Context) error {
			return fmt.Errorf("check: %w", daemon.Usage(errors.New("no such policy")))
		},
		"panicking": func(context.Context) error { panic("of all things") },
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
		os.Exit(daemon.Main("unlocker", os.Getenv(format), play))
	}
	os.Exit(m.Run())
}

func TestExitStatusAndSentence(t *testing.T) {
	for name, want := range map[string]struct {
		code     int
		sentence string
	}{
		"well":    {0, ""},
		"broken":  {1, "disks: a is gone; b is full; bye"},
		"misused": {2, "check: no such policy"},
		// As by timeout(1), whose second SIGTERM is not the operator's.
		"signalled": {1, "second signal (interrupt): exiting without waiting for requests in flight"},
		"panicking": {1, "panic: of all things"},
	} {
		for _, log := range []string{"console", "json", "auto", "nonsense"} {
			cmd := proctest.Self(scene, name)
			cmd.Env = append(cmd.Env, format+"="+log)
			got := proctest.Run(t, cmd)
			sentence := strings.TrimPrefix(strings.TrimSpace(got.Stderr), "unlocker: ")
			if log == "console" && name == "panicking" {
				continue // Go prints it
			}
			if line := struct{ Level, Message string }{}; log != "console" && sentence != "" {
				if err := json.Unmarshal([]byte(got.Stderr), &line); err != nil || line.Level != "error" {
					t.Errorf("%s, %s: %v, level %q", name, log, err, line.Level)
				}
				sentence = line.Message
			}
			if got.Code != want.code || sentence != want.sentence {
				t.Errorf("%s, %s: status %d and %q, want %d and %q", name, log, got.Code, sentence, want.code,
					want.sentence)
			}
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
