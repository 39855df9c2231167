//go:build unix

package childproc

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/clustermutex/unlocker/internal/text"
)

// Child is a command that runs. It leads a process group of its own, so that a signal reaches what it started, too, and
// Ctrl-C does not reach it twice.
type Child struct {
	cmd       *exec.Cmd
	tty       *terminal
	resume    func() bool   // asked before a command that was suspended goes on
	suspended atomic.Bool   // stopped by the terminal, or kept so because resume said no
	done      chan struct{} // closed when the command ended; then code is set
	code      int
}

// StartError is why a command did not start.
type StartError struct {
	Command string
	Missing bool  // there is no such command
	Err     error // why it cannot be started
}

// Error is one line for people.
func (e *StartError) Error() string {
	if e.Missing {
		return "there is no command " + text.Visible(e.Command)
	}
	return fmt.Sprintf("the command %s cannot be started: %v", text.Visible(e.Command), e.Err)
}

// Unwrap is the system's reason.
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

// notStarted keeps the system's reason without what the packages in between add.
func notStarted(name string, err error) error {
	var reason syscall.Errno
	if errors.As(err, &reason) {
		err = reason
	}
	return &StartError{Command: name, Err: err}
}

// Start starts the command. A suspended command goes on only if resume agrees. Start returns a child that will be done,
// or a [*StartError].
func Start(cmd *exec.Cmd, resume func() bool) (*Child, error) {
	c := &Child{cmd: cmd, tty: openTerminal(), resume: resume, done: make(chan struct{})}
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	dieWithParent(c.cmd.SysProcAttr)
	c.tty.lend(c.cmd.SysProcAttr)
	started := make(chan error)
	go func() {
		// the kernel ties dieWithParent to the thread that started the command, not to the process
		runtime.LockOSThread()
		err := c.cmd.Start()
		started <- err
		if err == nil {
			c.code = c.wait()
			c.tty.takeBack()
			close(c.done)
		}
	}()
	if err := <-started; err != nil {
		c.tty.takeBack()
		return nil, notStarted(cmd.Path, err)
	}
	return c, nil
}

// Done is closed when the command ended.
func (c *Child) Done() <-chan struct{} { return c.done }

// Code is the status of the command that ended, as a shell would report it.
func (c *Child) Code() int { return c.code }

// SignalStatus plus the number of a signal is the status of a process that the signal ended.
const SignalStatus = 128

// unknownStatus is the status of a command whose end is unknown.
const unknownStatus = 1

// wait blocks until the command ended and returns its status as a shell would.
func (c *Child) wait() int {
	for {
		var ws unix.WaitStatus
		_, err := unix.Wait4(c.cmd.Process.Pid, &ws, unix.WUNTRACED, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return unknownStatus
		case ws.Exited():
			return ws.ExitStatus()
		case ws.Signaled():
			return SignalStatus + int(ws.Signal())
		case ws.Stopped() && c.tty != nil && ws.StopSignal() != unix.SIGSTOP:
			c.suspend()
		}
	}
}

// suspend stops mutexctl with its command, as a shell expects after Ctrl-Z. Nobody extends the lock until the shell
// lets us go on: a command whose lock is gone by then never wakes up.
func (c *Child) suspend() {
	c.suspended.Store(true)
	woken := make(chan os.Signal, 1)
	signal.Notify(woken, unix.SIGCONT)
	defer signal.Stop(woken)
	c.tty.takeBack()
	_ = unix.Kill(0, unix.SIGTSTP) // the own group: the rest of a pipeline, too
	select {
	case <-woken:
	case <-time.After(time.Second): // no shell is there that could wake us, so the kernel did not stop us either
	}
	if c.resume() {
		c.suspended.Store(false)
		c.tty.give(c.cmd.Process.Pid)
		c.Signal(unix.SIGCONT)
	}
}

// InterruptToo ends mutexctl and its own group by INT, as Ctrl-C does without a group in between, where that is how the
// command ended in the terminal's foreground: a shell that runs a script must not go on with the next line. The lock is
// given back by now.
func (c *Child) InterruptToo() {
	if c != nil && c.tty != nil && c.code == SignalStatus+int(unix.SIGINT) {
		signal.Reset(unix.SIGINT)
		_ = unix.Kill(0, unix.SIGINT)
	}
}

// Signal sends a signal to the whole group.
func (c *Child) Signal(sig os.Signal) {
	if s, ok := sig.(syscall.Signal); ok {
		_ = unix.Kill(-c.cmd.Process.Pid, s) // only fails when all of them are gone
	}
}

// End ends the whole group: TERM, the grace, KILL. What the command left behind in its group goes with it, after the
// same grace: a shell dies at once of a TERM, and the program that it runs may still have to clean up. A suspended
// command gets no grace: it would have to wake up for that, after its time.
func (c *Child) End(grace time.Duration) {
	if !c.suspended.Load() {
		c.Signal(unix.SIGTERM)
		c.untilGone(time.After(grace))
	}
	c.Signal(unix.SIGKILL)
	<-c.done
}

// untilGone blocks until the command and all others of its group have ended, or enough.
func (c *Child) untilGone(enough <-chan time.Time) {
	select {
	case <-c.done:
	case <-enough:
		return
	}
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for unix.Kill(-c.cmd.Process.Pid, 0) != unix.ESRCH { // only the parent of the others is notified
		c.reap()
		select {
		case <-again.C:
		case <-enough:
			return
		}
	}
}

// reap waits for dead processes of the group whose parents died before them, where mutexctl inherits them, as the first
// process of a container does: nobody else would, and they would count as alive.
func (c *Child) reap() {
	for {
		if pid, err := unix.Wait4(-c.cmd.Process.Pid, nil, unix.WNOHANG, nil); err != unix.EINTR && pid <= 0 {
			return
		}
	}
}
