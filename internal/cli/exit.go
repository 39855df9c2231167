package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/clustermutex/unlocker/internal/cli/childproc"
)

// The exit statuses of mutexctl; `mutexctl help exit-codes` explains them.
const (
	ExitOK          = 0
	ExitFailure     = 1
	ExitUsage       = 2
	ExitHeld        = 3
	ExitNoLock      = 4
	ExitLost        = 5
	ExitNotRunnable = 126 // run: the command exists but cannot be started
	ExitNotFound    = 127 // run: there is no such command
)

const exitCodes = `mutexctl exits with one of these statuses:

  0    done
  1    failure: etcd is unreachable or refused the request, or something broke
  2    usage: a wrong flag or argument; etcd was not contacted
  3    held by another: the lock was not free in time, or the hold is not the one you named
  4    no such lock: nobody holds it
  5    lost while running: the lock was lost while the command of "run" ran

"mutexctl run" exits with the status of its command, whatever it is. Its own statuses are:

  0    with --once-per: the period is already used up and the command did not start; change this
       with --skip-status
  1    etcd, as above, or with --once-per a clock that is wrong; the command did not start
  3    the lock was not free within --wait; the command did not start
  5    the lock was lost; the command was ended (even if it then succeeded)
  126  the command exists but cannot be started; the lock was not taken
  127  there is no such command; the lock was not taken
  128+n  signal n ended the command, or mutexctl while it waited (130 is Ctrl-C, 143 is TERM); this
       includes a signal of --on-ask

"mutexctl check" is a Nagios and Icinga plugin with their statuses: 0 OK, 1 WARNING, 2 CRITICAL,
3 UNKNOWN, which also stands for a wrong argument.

If your command may exit with one of these statuses itself, look at stderr: each line that run writes
begins with "mutexctl run:".`

func newExitCodesTopic() *cobra.Command {
	return &cobra.Command{
		Use:   "exit-codes",
		Short: "The exit statuses of all commands",
		Long:  exitCodes,
		Example: `  # take the lock if it is free; the status shows why the command did not run
  mutexctl run nightly/report --wait 0 -- ./report.sh
  case $? in
    3) echo "another process holds it" ;;
    5) echo "the lock was lost" ;;
  esac`,
	}
}

// statusError makes mutexctl exit with a status. Without err nothing is printed: run's command has said why it failed,
// and check has printed its verdict.
type statusError struct {
	status int
	err    error
}

func (e *statusError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit status %d", e.status)
	}
	return e.err.Error()
}

func (e *statusError) Unwrap() error { return e.err }

func usagef(format string, args ...any) error {
	return &statusError{ExitUsage, fmt.Errorf(format, args...)}
}

func heldf(format string, args ...any) error {
	return &statusError{ExitHeld, fmt.Errorf(format, args...)}
}

func noLockf(format string, args ...any) error {
	return &statusError{ExitNoLock, fmt.Errorf(format, args...)}
}

func lostf(format string, args ...any) error {
	return &statusError{ExitLost, fmt.Errorf(format, args...)}
}

func status(err error) int {
	var (
		s     *statusError
		sig   childproc.SignalError
		start *childproc.StartError
	)
	switch {
	case err == nil:
		return ExitOK
	case errors.As(err, &s):
		return s.status
	case errors.As(err, &sig):
		return childproc.SignalStatus + int(sig.Signal)
	case errors.As(err, &start) && start.Missing:
		return ExitNotFound
	case errors.As(err, &start):
		return ExitNotRunnable
	}
	return ExitFailure
}
