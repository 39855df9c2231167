package cli

import (
	"context"
	"errors"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/clustermutex/unlocker/internal/cli/childproc"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

type job struct {
	*runOptions
	s       *session
	locks   *mutex.Client
	name    string // of the lock
	path    string // of the command
	argv    []string
	signals *childproc.Signals
	group   *childproc.Group
}

// runCommand runs the command, and returns when it has ended, by itself or because the lock was lost. A *statusError
// without a text has the command's status. The child is nil if the command did not start.
func (j *job) runCommand(lock *mutex.Lock) (*childproc.Child, error) {
	if err := j.signals.HandOver(); err != nil {
		return nil, err
	}
	held := func() bool { return lock.Context().Err() == nil && time.Now().Before(lock.Deadline()) }
	c, err := childproc.Start(&exec.Cmd{
		Path: j.path, Args: j.argv, Env: lockEnvironment(lock),
		Stdin: j.app.Stdin, Stdout: j.app.Stdout, Stderr: j.app.Stderr,
	}, j.group, held)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(lock.Context())
	defer stop()
	finishRequested, signalled := lock.FinishRequested(), false
	for {
		select {
		case <-finishRequested:
			finishRequested = nil
			j.onFinishRequest(ctx, lock, c)
		case sig := <-j.signals.C():
			c.Signal(sig)
			signalled = true
		case <-c.Done():
			stop()
			if signalled {
				c.Linger(j.grace) // its children got the signal, too, and may be cleaning up
			}
			j.killLeftovers(lock)
			return c, commandStatus(c.Code())
		case <-lock.Context().Done():
			return c, j.onLost(lock, c)
		}
	}
}

// killLeftovers kills processes that the command left behind, so that none works on without the lock.
func (j *job) killLeftovers(lock *mutex.Lock) {
	killed, err := j.group.KillAll(lock.Context().Done())
	switch {
	case err != nil:
		j.app.note("the command left processes behind that cannot be ended: %v", err)
	case killed > 0:
		j.app.note("killed %s that the command left behind; --leave-children lets them run",
			text.Count(killed, "process"))
	}
}

// commandStatus returns an error that makes the command's status ours.
func commandStatus(code int) error {
	if code == ExitOK {
		return nil
	}
	return &statusError{status: code}
}

// outcome combines the results of the work and of the unlock. The command's status counts, unless the lock was lost
// under it.
func (j *job) outcome(work, unlock error) error {
	s, isStatus := errors.AsType[*statusError](work)
	switch {
	case work != nil && (!isStatus || s.err != nil), unlock == nil:
		return work // if the lock was not released, it will be auto-unlocked
	case errors.Is(unlock, mutex.ErrNotHeld):
		return lostErrorf("the command ended with status %d, but %w", status(work), unlock)
	}
	j.app.note("the lock was not released: %v", unlock)
	return work
}

// onLost ends the command, because the lock is lost or may be, as etcd did not answer in time.
func (j *job) onLost(lock *mutex.Lock, c *childproc.Child) error {
	j.app.note("%v; ending the command, at the latest in %v", context.Cause(lock.Context()), j.grace)
	c.End(syscall.SIGTERM, j.grace)
	return lostErrorf("the command was ended, because the lock was lost")
}

// onAsk is what --on-ask says: a signal for the command, or a shell command to run, when run is asked to finish. The
// zero onAsk only reports the request.
type onAsk struct {
	signal  syscall.Signal // 0: none
	command string         // for the shell
}

// parse reads the name of a signal that run forwards, or a shell command.
func (o *onAsk) parse(value string) error {
	name := "SIG" + strings.TrimPrefix(value, "SIG")
	signal, err := childproc.ParseSignal(name)
	if err != nil {
		return &statusError{ExitUsage, err}
	}
	if o.signal = signal; signal != 0 {
		return nil
	}
	if strings.TrimSpace(value) == "" {
		return usageErrorf("want the name of a signal, or a command")
	}
	o.command = value
	return nil
}

// onFinishRequest reports on stderr who asks the command to finish, and performs --on-ask. ctx ends with the command.
func (j *job) onFinishRequest(ctx context.Context, lock *mutex.Lock, c *childproc.Child) {
	j.app.note("%v", lock.FinishRequestError())
	switch {
	case childproc.EndsCommand(j.onAsk.signal):
		j.app.note("ending the command with %s, at the latest in %v", childproc.SignalName(j.onAsk.signal),
			j.grace)
		c.End(j.onAsk.signal, j.grace)
	case j.onAsk.signal != 0:
		c.Signal(j.onAsk.signal)
	case j.onAsk.command != "":
		go j.runOnAsk(ctx, lock, lock.FinishRequest())
	}
}

// runOnAsk runs the shell command of --on-ask until ctx ends.
func (j *job) runOnAsk(ctx context.Context, lock *mutex.Lock, r *metadata.FinishRequest) {
	cmd := childproc.Shell(ctx, j.onAsk.command)
	cmd.Env = append(lockEnvironment(lock), envAskedBy+"="+text.Visible(r.By),
		envAskedReason+"="+text.Visible(r.Reason))
	j.group.Contain(cmd)
	cmd.Stdout = j.app.Stdout
	cmd.Stderr = j.app.Stderr
	if err := cmd.Run(); err != nil && ctx.Err() == nil {
		j.app.note("the command of --on-ask failed: %v", err)
	}
}
