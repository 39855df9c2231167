package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/clustermutex/unlocker/pkg/mutex"
)

type runOptions struct {
	app *app
	takeFlags
	expect          time.Duration
	autoUnlockAfter time.Duration
	maxHold         time.Duration
	grace           time.Duration
}

func newRun(a *app) *cobra.Command {
	o := &runOptions{app: a}
	cmd := &cobra.Command{
		Use:   "run NAME -- COMMAND [ARGUMENT...]",
		Short: "Run a command while holding a lock",
		Long: `Take the lock, run the command, give the lock back, and end with the command's status.

While the lock is held by another, run waits (--wait) and says on stderr who holds it, once per holder. While the command runs,
the lock is extended, for --max-hold at most. People are alerted when the command runs longer than --expect: that it is alive
does not put the alert off.

The command has MUTEX_NAME, MUTEX_UUID and MUTEX_TOKEN in its environment. The token grows with every acquisition of any lock:
whoever writes to a store that several machines share should hand it along, and the store should refuse a smaller one than it
has seen. Without that no lock in the world can keep a machine that was paused from writing late.

The command is the leader of a process group of its own, and of the terminal where there is one. HUP, INT, QUIT, TERM, USR1 and
USR2 are passed on to the group; the lock is given back when the command has ended, whatever ended it. What the command leaves
behind in the background runs on without the lock.

When the lock is lost, because somebody removed it or because etcd could not be reached in time, the group gets TERM, and KILL
after --grace. Where time ran out, both happen before the lock can be auto-unlocked; a lock that a person removed may be taken by
another at once, and then the token is what protects the data.

When mutexctl itself is killed with KILL, the lock stays until the unlocker removes it, --auto-unlock-after its last extension.
On Linux the kernel then kills the command, too, but not what the command started. When mutexctl itself is stopped with STOP,
nobody watches over the command, which works on: send signals to the command's group instead.

Ends with the command's own status; with 3 when the lock was not free in time, 5 when it was lost, 126 or 127 when the command
can not be started: see "mutexctl help exit-codes".`,
		Example: `  mutexctl run nightly/report -- ./report.sh
  mutexctl run nightly/report --wait 0 --purpose 'monthly report, ticket OPS-12' -- ./report.sh --month 7
  mutexctl run db/migrate --expect 20m --max-hold 2h --attr build=1234 -- ./migrate.sh`,
		Args: wants(2, -1, "NAME -- COMMAND"),
	}
	o.takeFlags.add(cmd, patience{forever: true})
	f := cmd.Flags()
	f.StringVar(&o.owner, "owner", "", "`name` of who holds the lock (default: the command's)")
	f.DurationVar(&o.expect, "expect", mutex.DefaultExpectedRunTime, "alert people when the command runs longer")
	f.DurationVar(&o.autoUnlockAfter, "auto-unlock-after", time.Minute, "how long after the last extension the lock is auto-unlocked, when this machine dies")
	f.DurationVar(&o.maxHold, "max-hold", 24*time.Hour, "extend the lock for so long; then it is lost and the command is ended")
	f.DurationVar(&o.grace, "grace", 5*time.Second, "time between TERM and KILL when the lock is lost")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if cmd.ArgsLenAtDash() != 1 {
			return usagef("want the name, then --, then the command: mutexctl run NAME -- COMMAND")
		}
		name, err := o.names.good(args[0])
		if err != nil {
			return err
		}
		return o.run(cmd.Context(), name, args[1:])
	}
	return cmd
}

// options are the lock's as the library wants them. The hold counts as lost so early that TERM, grace and KILL are over when
// the lock can be auto-unlocked.
func (o *runOptions) options(command string) ([]mutex.Option, error) {
	err := times(map[string]time.Duration{
		"expect": o.expect, "auto-unlock-after": o.autoUnlockAfter, "max-hold": o.maxHold, "grace": o.grace,
	})
	if err != nil {
		return nil, err
	}
	margin := o.grace + time.Second
	switch {
	case o.autoUnlockAfter < 2*margin:
		return nil, usagef("--auto-unlock-after is %v, with a --grace of %v it must be at least %v", o.autoUnlockAfter, o.grace, 2*margin)
	case o.maxHold < o.autoUnlockAfter:
		return nil, usagef("--max-hold is %v, it must not be shorter than --auto-unlock-after, which is %v", o.maxHold, o.autoUnlockAfter)
	case o.maxHold < o.expect:
		return nil, usagef("--max-hold is %v, it must not be shorter than --expect, which is %v", o.maxHold, o.expect)
	}
	if o.owner == "" {
		o.owner = filepath.Base(command)
	}
	options, err := o.takeFlags.options()
	return append(options, mutex.ExpectedRunTime(o.expect), mutex.AutoUnlockAfter(o.autoUnlockAfter),
		mutex.SafetyMargin(margin), mutex.Heartbeat(o.maxHold)), err
}

func (o *runOptions) run(ctx context.Context, name string, argv []string) error {
	path, err := findCommand(argv[0])
	if err != nil {
		return err
	}
	options, err := o.options(path)
	if err != nil {
		return err
	}
	signals := catch(ctx)
	defer signals.stop()
	s, err := o.app.connect()
	if err != nil {
		return err
	}
	defer s.close()
	locks, err := s.locks(options)
	if err != nil {
		return err
	}
	defer locks.Close() // waits for the clean-up where the waiting was given up
	lock, err := s.take(signals.ctx, locks, name, o.wait)
	if err != nil {
		return err
	}
	if err := signals.hand(); err != nil {
		_ = lock.Unlock() // we are leaving; what could not be given back is auto-unlocked
		return err
	}
	return o.supervise(lock, &exec.Cmd{
		Path: path, Args: argv, Env: lockEnvironment(lock),
		Stdin: o.app.Stdin, Stdout: o.app.Stdout, Stderr: o.app.Stderr,
	}, signals)
}

// supervise runs the command for as long as the lock is held.
func (o *runOptions) supervise(lock *mutex.Lock, cmd *exec.Cmd, signals *caught) error {
	held := func() bool { return lock.Context().Err() == nil && time.Now().Before(lock.Deadline()) }
	c, err := startChild(cmd, held)
	if err != nil {
		_ = lock.Unlock() // the reason why nothing was run is what the caller needs; the lock is auto-unlocked at the latest
		return err
	}
	for {
		select {
		case sig := <-signals.c:
			c.signal(sig)
		case <-c.done:
			err := o.ended(lock, c.code)
			c.interruptToo()
			return err
		case <-lock.Context().Done():
			return o.lost(lock, c)
		}
	}
}

// ended gives the lock back after the command ended by itself. The command's status counts, unless the lock was lost under it.
func (o *runOptions) ended(lock *mutex.Lock, code int) error {
	err := lock.Unlock()
	if errors.Is(err, mutex.ErrNotHeld) {
		return lostf("the command ended with status %d, but %w", code, err)
	}
	if err != nil {
		o.app.note("the lock was not given back: %v", err)
	}
	if code != ExitOK {
		return &statusError{status: code}
	}
	return nil
}

func (o *runOptions) lost(lock *mutex.Lock, c *child) error {
	cause := context.Cause(lock.Context())
	o.app.note("%v; ending the command, at the latest in %v", cause, o.grace)
	c.end(o.grace)
	_ = lock.Unlock() // it may still stand: "lost" includes that etcd did not answer in time
	return lostf("the command was ended, because the lock was lost")
}

// The variables by which a command knows the lock that it runs under.
const (
	envName  = "MUTEX_NAME"
	envUUID  = "MUTEX_UUID"
	envToken = "MUTEX_TOKEN"
)

func lockEnvironment(lock *mutex.Lock) []string {
	return append(os.Environ(), envName+"="+lock.Name(), envUUID+"="+lock.UUID(), fmt.Sprintf("%s=%d", envToken, lock.Token()))
}
