//go:build unix

package childproc

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

func forwardedSignals() []os.Signal {
	return []os.Signal{unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGUSR1, unix.SIGUSR2}
}

// ParseSignal returns the signal with this name, such as SIGTERM, and 0 if there is none. It is an error if the signal
// cannot be sent to a command.
func ParseSignal(name string) (syscall.Signal, error) {
	if s := unix.SignalNum(name); s == 0 || slices.Contains(forwardedSignals(), os.Signal(s)) {
		return s, nil
	}
	return 0, fmt.Errorf("%s cannot be given to the command: use HUP, INT, QUIT, TERM, USR1 or USR2", name)
}

// SignalName returns the name of a signal, such as SIGTERM.
func SignalName(s syscall.Signal) string { return unix.SignalName(s) }

// EndsCommand reports whether a signal asks a command to end.
func EndsCommand(s syscall.Signal) bool { return s != 0 && s != unix.SIGUSR1 && s != unix.SIGUSR2 }

// Shell returns a command that the system's shell reads.
func Shell(ctx context.Context, script string) *exec.Cmd {
	return exec.CommandContext(ctx, "/bin/sh", "-c", script) //nolint:gosec // the user's own command
}
