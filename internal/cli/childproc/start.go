// Package childproc runs a command as a shell does: in its own process group, which gets the terminal and the signals.
package childproc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"syscall"

	"github.com/clustermutex/unlocker/internal/text"
)

// StartError means that a command did not start.
type StartError struct {
	Command string
	Missing bool  // there is no such command
	Err     error // the system's reason
}

// Error returns one line.
func (e *StartError) Error() string {
	if e.Missing {
		return "there is no command " + text.ShellWord(e.Command)
	}
	return fmt.Sprintf("the command %s cannot be started: %v", text.Visible(e.Command), e.Err)
}

// Find looks for the program on the path. Its error is a [*StartError].
func Find(name string) (string, error) {
	path, err := exec.LookPath(name)
	switch {
	case err == nil:
		return path, nil
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, os.ErrNotExist):
		return "", &StartError{Command: name, Missing: true}
	}
	return "", newStartError(name, err)
}

// newStartError returns a [*StartError] with the system's reason, without what the packages in between add.
func newStartError(name string, err error) error {
	var reason syscall.Errno
	if errors.As(err, &reason) {
		err = reason
	}
	return &StartError{Command: name, Err: err}
}

type exitState struct {
	done chan struct{} // closed when the command has ended and code is set
	code int
}

// Done is closed when the command has ended.
func (e *exitState) Done() <-chan struct{} { return e.done }

// Code returns the status of the ended command, as a shell would report it.
func (e *exitState) Code() int { return e.code }

// SignalStatus plus the number of a signal is the status of a process that the signal ended.
const SignalStatus = 128

// unknownStatus is the status of a command whose own status is unknown.
const unknownStatus = 1

// Signals catches signals, so that none ends mutexctl between taking and releasing the lock. Until [Signals.HandOver],
// the first one ends the context; later ones are delivered on a channel.
type Signals struct {
	c       chan os.Signal
	ctx     context.Context
	end     context.CancelCauseFunc
	stopped chan struct{}
}

// Catch starts catching all signals that a command gets. [Signals.Context] is derived from ctx.
func Catch(ctx context.Context) *Signals {
	// SIGPIPE is ignored: when nobody reads our stderr any more, it would end us and leave the lock.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	return catch(ctx, forwardedSignals()...)
}

// catch catches these signals, except those that our parent made us ignore, as nohup does, and shells do for background
// jobs.
func catch(ctx context.Context, signals ...os.Signal) *Signals {
	s := &Signals{c: make(chan os.Signal, 8), stopped: make(chan struct{})}
	s.ctx, s.end = context.WithCancelCause(ctx)
	signal.Notify(s.c, slices.DeleteFunc(signals, signal.Ignored)...)
	go func() {
		defer close(s.stopped)
		select {
		case sig := <-s.c:
			s.end(SignalError{sig.(syscall.Signal)})
		case <-s.ctx.Done():
		}
	}()
	return s
}

// Context ends with the first signal that comes before [Signals.HandOver], with a [SignalError] as its cause.
func (s *Signals) Context() context.Context { return s.ctx }

// C delivers the signals after [Signals.HandOver].
func (s *Signals) C() <-chan os.Signal { return s.c }

// HandOver makes [Signals.C] deliver signals from now on. If one came before, it is the error.
func (s *Signals) HandOver() error {
	s.end(nil)
	<-s.stopped
	if sig, ok := context.Cause(s.ctx).(SignalError); ok {
		return sig
	}
	return nil
}

// Stop stops catching signals.
func (s *Signals) Stop() {
	signal.Stop(s.c)
	s.end(nil)
}

// SignalError is the cause of a context that a signal ended.
type SignalError struct{ syscall.Signal }

// Error names the signal.
func (e SignalError) Error() string { return "ended by the signal " + e.Signal.String() }

// UntilSignal returns a context that ends with INT or TERM, with a [SignalError] as its cause.
func UntilSignal(ctx context.Context) (context.Context, func()) {
	s := catch(ctx, syscall.SIGINT, syscall.SIGTERM)
	return s.Context(), s.Stop
}
