package childproc

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"

	"github.com/clustermutex/unlocker/internal/text"
)

// StartError is why a command did not start.
type StartError struct {
	Command string
	Missing bool  // there is no such command
	Err     error // the system's reason
}

// Error returns one line.
func (e *StartError) Error() string {
	if e.Missing {
		return "there is no command " + text.Visible(e.Command)
	}
	return fmt.Sprintf("the command %s cannot be started: %v", text.Visible(e.Command), e.Err)
}

// Unwrap returns the system's reason.
func (e *StartError) Unwrap() error { return e.Err }

// Find looks for the program on the path. Its error is a [*StartError].
func Find(name string) (string, error) {
	path, err := exec.LookPath(name)
	switch {
	case err == nil:
		return path, nil
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, os.ErrNotExist):
		return "", &StartError{Command: name, Missing: true}
	}
	return "", notStarted(name, err)
}

// notStarted keeps the system's reason, without what the packages in between add.
func notStarted(name string, err error) error {
	var reason syscall.Errno
	if errors.As(err, &reason) {
		err = reason
	}
	return &StartError{Command: name, Err: err}
}

// SignalStatus plus the number of a signal is the status of a process that the signal ended.
const SignalStatus = 128

// unknownStatus is the status of a command whose end is unknown.
const unknownStatus = 1
