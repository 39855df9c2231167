package cli

import (
	"context"
	"errors"
	"os/exec"
	"time"

	"github.com/clustermutex/unlocker/internal/cli/childproc"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

// job is a command and the lock under which it runs.
type job struct {
	app     *app
	s       *session
	locks   *mutex.Client
	name    string // of the lock
	path    string // of the command
	argv    []string
	take    *takeFlags
	period  *periodFlags
	grace   time.Duration // between TERM and KILL when the lock is lost
	onAsk   onAsk
	signals *childproc.Signals
	group   *childproc.Group
}

// work starts the command and returns when it has ended, by itself or because the lock was lost. An error without a
// text is the command's status; the child is nil when it did not start.
func (j *job) work(lock *mutex.Lock) (*childproc.Child, error) {
	if err := j.signals.Hand(); err != nil {
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
	asked := lock.Asked()
	for {
		select {
		case <-asked:
			asked = nil
			j.asked(ctx, lock, c)
		case sig := <-j.signals.C():
			c.Signal(sig)
		case <-c.Done():
			stop()
			j.clear(lock, c)
			return c, passedOn(c.Code())
		case <-lock.Context().Done():
			return c, j.lost(lock, c)
		}
	}
}

// clear ends what the command left behind, so that nothing works on without the lock.
func (j *job) clear(lock *mutex.Lock, c *childproc.Child) {
	killed, err := c.Clear(lock.Context().Done())
	switch {
	case err != nil:
		j.app.note("the command left processes behind that cannot be ended: %v", err)
	case killed > 0:
		j.app.note("killed %s that the command left behind; --leave-children leaves such alone",
			text.Count(killed, "process"))
	}
}

// passedOn makes the command's status ours.
func passedOn(code int) error {
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
		return work // a lock that is not released is auto-unlocked
	case errors.Is(unlock, mutex.ErrNotHeld):
		return lostf("the command ended with status %d, but %w", status(work), unlock)
	}
	j.app.note("the lock was not released: %v", unlock)
	return work
}

// lost ends the command because the lock is lost, or may be: etcd did not answer in time.
func (j *job) lost(lock *mutex.Lock, c *childproc.Child) error {
	j.app.note("%v; ending the command, at the latest in %v", context.Cause(lock.Context()), j.grace)
	c.End(j.grace)
	return lostf("the command was ended, because the lock was lost")
}
