package cli

import (
	"errors"
	"fmt"

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

// statusError makes mutexctl exit with a status. Without err nothing is printed: the command of run has reported why it
// failed, and check has printed its result.
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

// isReported reports whether the error is only an exit status.
func isReported(err error) bool {
	s, ok := errors.AsType[*statusError](err)
	return ok && s.err == nil
}

func usageErrorf(format string, args ...any) error {
	return &statusError{ExitUsage, fmt.Errorf(format, args...)}
}

func heldErrorf(format string, args ...any) error {
	return &statusError{ExitHeld, fmt.Errorf(format, args...)}
}

func noLockErrorf(format string, args ...any) error {
	return &statusError{ExitNoLock, fmt.Errorf(format, args...)}
}

func lostErrorf(format string, args ...any) error {
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
