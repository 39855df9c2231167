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
	ExitNotRunnable = 126 // run: the command is there and can not be started
	ExitNotFound    = 127 // run: there is no such command
)

const exitCodes = `mutexctl ends with one of these statuses:

  0    done
  1    failure: etcd can not be reached, refused the request, or something broke
  2    usage: a wrong flag or argument; nothing was asked of etcd
  3    held by another: the lock was not free in time, or the hold is not the one that was named
  4    no such lock: nobody holds it
  5    lost while running: the lock went away under the command of "run"

"mutexctl run" passes on the status of its command, whatever it is. What run says on its own account:

  0    with --once-per: the period is used up already, the command was not started; --skip-status makes it another one
  1    etcd, as above; with --once-per also a clock that is wrong; the command was not started
  3    the lock was not free within --wait; the command was not started
  5    the lock was lost; the command was ended (also when it then ended well)
  126  the command is there and can not be started; the lock was not taken
  127  there is no such command; the lock was not taken
  128+n  the command was ended by signal n, or mutexctl was while it waited (130 is Ctrl-C, 143 is TERM)

"mutexctl check" is a plugin for Nagios and Icinga and has their statuses: 0 OK, 1 WARNING, 2 CRITICAL, 3 UNKNOWN, which is also
that of a wrong argument.

A command that may itself end with one of these can be told apart by what run says on stderr: each line of its own begins with
"mutexctl run:".`

func newExitCodesTopic() *cobra.Command {
	return &cobra.Command{
		Use:   "exit-codes",
		Short: "The exit statuses of all commands",
		Long:  exitCodes,
		Example: `  # take the lock if it is free, and tell apart why the command did not run
  mutexctl run nightly/report --wait 0 -- ./report.sh
  case $? in
    3) echo "somebody else is at it" ;;
    5) echo "the lock was lost" ;;
  esac`,
	}
}

// statusError is an error that ends mutexctl with a status of its own. Without a text the status says it all, as that
// of run's command does.
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

// status is the exit status that err stands for.
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
