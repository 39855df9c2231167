//go:build unix

package childproc

import (
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Child is a running command. It leads its own process group, so that signals also reach what it started, and Ctrl-C
// does not reach it twice.
type Child struct {
	cmd       *exec.Cmd
	group     *Group
	tty       *terminal
	resume    func() bool // reports whether a suspended command may continue
	suspended atomic.Bool // stopped by the terminal, and not continued since
	exitState
}

// Start starts the command in the group. If the command is suspended, it continues only if resume allows it. The error
// is a [*StartError].
func Start(cmd *exec.Cmd, group *Group, resume func() bool) (*Child, error) {
	c := &Child{cmd: cmd, group: group, tty: openTerminal(), resume: resume,
		exitState: exitState{done: make(chan struct{})}}
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	dieWithParent(c.cmd.SysProcAttr)
	group.Contain(c.cmd)
	c.tty.lendTo(c.cmd.SysProcAttr)
	started := make(chan error)
	go func() {
		// the kernel ties dieWithParent to the thread that started the command, not to the process
		runtime.LockOSThread()
		err := c.cmd.Start()
		if c.tty != nil {
			signal.Ignore(unix.SIGTTOU) // else the kernel stops us when we write to our terminal from its background
		}
		started <- err
		if err == nil {
			c.code = c.wait()
			c.tty.takeBack()
			close(c.done)
		}
	}()
	if err := <-started; err != nil {
		c.tty.takeBack()
		return nil, newStartError(cmd.Path, err)
	}
	return c, nil
}

// wait blocks until the command ends and returns its status as a shell would.
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

// suspend stops mutexctl together with its command, as a shell expects after Ctrl-Z. Nothing extends the lock until the
// shell continues us; if the lock is gone by then, the command stays stopped.
func (c *Child) suspend() {
	c.suspended.Store(true)
	woken := make(chan os.Signal, 1)
	signal.Notify(woken, unix.SIGCONT)
	defer signal.Stop(woken)
	c.tty.takeBack()
	_ = unix.Kill(0, unix.SIGTSTP) // our own group: includes the rest of a pipeline
	select {
	case <-woken:
	case <-time.After(time.Second): // there is no shell that could continue us, so the kernel did not stop us
	}
	if c.resume() {
		c.suspended.Store(false)
		c.tty.setForeground(c.cmd.Process.Pid)
		c.Signal(unix.SIGCONT)
	}
}

// AfterRelease does what must wait until the lock is released: it sends INT to mutexctl and its process group if Ctrl-C
// ended the command, so that a shell script does not continue with its next line.
func (c *Child) AfterRelease() {
	if c != nil && c.tty != nil && c.code == SignalStatus+int(unix.SIGINT) {
		signal.Reset(unix.SIGINT)
		_ = unix.Kill(0, unix.SIGINT)
	}
}

// Signal sends a signal to the whole group.
func (c *Child) Signal(sig os.Signal) {
	if s, ok := sig.(syscall.Signal); ok {
		_ = unix.Kill(-c.cmd.Process.Pid, s) // fails only if the whole group is gone
	}
}

// End ends the whole process group with a signal and, after the grace period, KILL. The grace period lasts until the
// whole group has ended: a shell ends at once, while the program that it runs may have to clean up. A suspended command
// gets no grace period, because it would run without the lock. Processes that left the process group but not the
// [Group] are killed last, without a grace period.
func (c *Child) End(sig os.Signal, grace time.Duration) {
	if !c.suspended.Load() {
		c.Signal(sig)
		c.Linger(grace)
	}
	c.Signal(unix.SIGKILL)
	<-c.done
	_, _ = c.group.KillAll(nil) // if this fails, the guard tries again
}

// Linger blocks until the whole process group has ended, or the grace period is over.
func (c *Child) Linger(grace time.Duration) {
	timeout := time.After(grace)
	select {
	case <-c.done:
	case <-timeout:
		return
	}
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for unix.Kill(-c.cmd.Process.Pid, 0) != unix.ESRCH { // only their parents are notified
		c.reap()
		select {
		case <-again.C:
		case <-timeout:
			return
		}
	}
}

// reap reaps ended processes of the group whose parents ended first. As the first process of a container, mutexctl
// inherits them; unreaped, they would count as running.
func (c *Child) reap() {
	for {
		if pid, err := unix.Wait4(-c.cmd.Process.Pid, nil, unix.WNOHANG, nil); err != unix.EINTR && pid <= 0 {
			return
		}
	}
}
