//go:build unix

package cli

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

// child is the command of run. It lives in a process group of its own, so that a signal reaches what it started, too,
// and Ctrl-C does not reach it twice.
type child struct {
	cmd    *exec.Cmd
	tty    *terminal
	resume func() bool   // asked before a command that was suspended goes on
	asleep atomic.Bool   // suspended, or kept so because resume said no
	done   chan struct{} // closed when the command ended; then code is set
	code   int
}

// findCommand looks for the program before the lock is taken, and gives the statuses that a shell would.
func findCommand(name string) (string, error) {
	path, err := exec.LookPath(name)
	switch {
	case err == nil:
		return path, nil
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, os.ErrNotExist):
		return "", &statusError{ExitNotFound, fmt.Errorf("there is no command %s", text.Visible(name))}
	}
	return "", notStarted(name, err)
}

// notStarted gives the system's reason without what the packages in between say about it.
func notStarted(name string, err error) error {
	var reason syscall.Errno
	if errors.As(err, &reason) {
		err = reason
	}
	return &statusError{ExitNotRunnable, fmt.Errorf("the command %s can not be started: %w", text.Visible(name), err)}
}

// startChild starts the command. The lock is held by now, so every way out of here ends in a done child or an error.
func startChild(cmd *exec.Cmd, resume func() bool) (*child, error) {
	c := &child{cmd: cmd, tty: openTerminal(), resume: resume, done: make(chan struct{})}
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

// wait blocks until the command ended and returns its status as a shell would.
func (c *child) wait() int {
	for {
		var ws unix.WaitStatus
		_, err := unix.Wait4(c.cmd.Process.Pid, &ws, unix.WUNTRACED, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return ExitFailure
		case ws.Exited():
			return ws.ExitStatus()
		case ws.Signaled():
			return exitSignal + int(ws.Signal())
		case ws.Stopped() && c.tty != nil && ws.StopSignal() != unix.SIGSTOP:
			c.suspend()
		}
	}
}

// suspend stops mutexctl with its command, as a shell expects after Ctrl-Z. Nobody extends the lock until the shell
// lets us go on: a command whose lock is gone by then never wakes up.
func (c *child) suspend() {
	c.asleep.Store(true)
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
		c.asleep.Store(false)
		c.tty.give(c.cmd.Process.Pid)
		c.signal(unix.SIGCONT)
	}
}

// interruptToo ends mutexctl and its own group by INT, as Ctrl-C does without a group in between, where that is how the
// command ended in the terminal's foreground: a shell that runs a script must not go on with the next line. The lock is
// given back by now.
func (c *child) interruptToo() {
	if c != nil && c.tty != nil && c.code == exitSignal+int(unix.SIGINT) {
		signal.Reset(unix.SIGINT)
		_ = unix.Kill(0, unix.SIGINT)
	}
}

// signal sends a signal to the whole group.
func (c *child) signal(sig os.Signal) {
	if s, ok := sig.(syscall.Signal); ok {
		_ = unix.Kill(-c.cmd.Process.Pid, s) // only fails when all of them are gone
	}
}

// end ends the whole group: TERM, the grace, KILL. What the command left behind in its group goes with it, after the
// same grace: a shell dies at once of a TERM, and the program that it runs may still have to tidy up. A command that
// sleeps gets no grace: it would have to wake up for it, after its time.
func (c *child) end(grace time.Duration) {
	if !c.asleep.Load() {
		c.signal(unix.SIGTERM)
		c.untilGone(time.After(grace))
	}
	c.signal(unix.SIGKILL)
	<-c.done
}

// untilGone blocks until the command and all others of its group have ended, or enough.
func (c *child) untilGone(enough <-chan time.Time) {
	select {
	case <-c.done:
	case <-enough:
		return
	}
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for unix.Kill(-c.cmd.Process.Pid, 0) != unix.ESRCH { // nothing tells who is not the parent of the others
		c.bury()
		select {
		case <-again.C:
		case <-enough:
			return
		}
	}
}

// bury takes note of the dead of the group whose parents died before them, where mutexctl is who inherits them, as the
// first process of a container: nobody else would, and they would count as alive.
func (c *child) bury() {
	for {
		if pid, err := unix.Wait4(-c.cmd.Process.Pid, nil, unix.WNOHANG, nil); err != unix.EINTR && pid <= 0 {
			return
		}
	}
}
