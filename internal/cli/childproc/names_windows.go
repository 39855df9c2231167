package childproc

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"syscall"
)

// forwardedSignals are the events that are passed on to the command: Ctrl-C and Ctrl-Break; the end of the window, the
// session or the system.
func forwardedSignals() []os.Signal { return []os.Signal{os.Interrupt, syscall.SIGTERM} }

// ParseSignal returns SIGINT or SIGTERM, which both stand for Ctrl-Break, and 0 if the name is not that of a signal. It
// fails if the signal cannot be sent to a command.
func ParseSignal(name string) (syscall.Signal, error) {
	switch name {
	case "SIGINT":
		return syscall.SIGINT, nil
	case "SIGTERM":
		return syscall.SIGTERM, nil
	case "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGKILL", "SIGSTOP":
		return 0, fmt.Errorf("%s cannot be given to the command on Windows: use INT or TERM (Ctrl-Break)", name)
	}
	return 0, nil
}

// SignalName returns the name of the event that the command gets instead of a signal.
func SignalName(syscall.Signal) string { return "Ctrl-Break" }

// EndsCommand reports whether a signal asks a command to end.
func EndsCommand(s syscall.Signal) bool { return s != 0 }

// Shell returns a command that the system's shell reads.
func Shell(ctx context.Context, script string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "cmd.exe")
	cmd.SysProcAttr = &syscall.SysProcAttr{CmdLine: `cmd.exe /D /S /C "` + script + `"`} // it has quoting of its own
	return cmd
}
