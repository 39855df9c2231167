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

	"github.com/clustermutex/unlocker/internal/cli/childproc"
	"github.com/clustermutex/unlocker/internal/holderproc"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

type runOptions struct {
	app *app
	takeFlags
	periodFlags
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
		Long: `Take the lock, run the command, release the lock, and exit with the command's status.

While another process holds the lock, run waits in line (--wait) and reports on stderr who holds it
and how many are ahead. With --wait given, it also waits for an unreachable etcd. While the command
runs, mutexctl extends the lock, up to --max-hold. People are alerted when the command runs longer
than --expect: extending the lock does not delay the alert, only "mutexctl alive" does.

With --semaphore N, at most N run at a time across all machines; everyone should give the same N.
With --shared many read at a time; with --exclusive one writes and nobody reads. All wait in one
line.

With --once-per 1h, the command runs once an hour across all machines: start it on each of them, as
often as you like. Hours begin on the hour in UTC, days at midnight; --period-offset shifts them. The
hour is used up when the command starts, even if it fails, unless --back-on-error is given. If it is
already used up, run says by whom on stderr and exits with 0 (--skip-status).

The command finds MUTEX_NAME, MUTEX_UUID and MUTEX_TOKEN in its environment, so "mutexctl alive"
needs no arguments there. The token grows with every acquisition of any lock: pass it along when you
write to storage that several machines share, and have the storage reject tokens smaller than the
largest it has seen. Without that, no lock can stop a paused machine from writing late.

The command leads a process group of its own, and has the terminal if there is one. HUP, INT, QUIT,
TERM, USR1 and USR2 are forwarded to the group. The lock is released when the command ends, however
it ends. Whatever the command leaves in the background runs on without the lock.

When the lock is lost, because somebody removed it or etcd was unreachable for too long, the group
gets TERM, and KILL after --grace. If time ran out, both happen before the lock can be auto-unlocked.
A lock that an operator removed may have a new holder at once; then only the token protects the data.

If mutexctl itself is killed with KILL, the lock stays until it is auto-unlocked, --auto-unlock-after
its last extension. On Linux the kernel then kills the command too, but not what the command started.
So the end of mutexctl proves nothing to a witness; the end of its container, or a reboot, does.
If mutexctl is stopped with STOP, nobody watches the command, which works on: send signals to the
command's group instead.

Exits with the command's own status; with 3 if the lock was not free in time and the command did not
start, 5 if the lock was lost, 126 or 127 if the command cannot be started: see
"mutexctl help exit-codes".`,
		Example: `  mutexctl run nightly/report -- ./report.sh
  mutexctl run nightly/report --wait 0 --purpose 'monthly report, ticket OPS-12' -- ./report.sh --month 7
  mutexctl run db/migrate --expect 20m --max-hold 2h --attr build=1234 -- ./migrate.sh
  mutexctl run transcoding --semaphore 3 -- ffmpeg -i in.mov out.mp4
  */5 * * * *  mutexctl run daily/report --once-per 24h --period-offset 6h --quiet -- ./report.sh   # crontab of each replica`,
		Args: wants(2, -1, "NAME -- COMMAND"),
	}
	o.takeFlags.add(cmd, waitTimeout{forever: true})
	f := cmd.Flags()
	o.periodFlags.add(f)
	f.StringVar(&o.owner, "owner", "", "`name` of the holder (default: the command's)")
	f.DurationVar(&o.expect, "expect", mutex.DefaultAlertAfter, "alert people when the command runs longer")
	f.DurationVar(&o.autoUnlockAfter, "auto-unlock-after", time.Minute,
		"when the lock is auto-unlocked after its last extension, should this machine die")
	f.DurationVar(&o.maxHold, "max-hold", 24*time.Hour,
		"how long to extend the lock; after that it is lost and the command is ended")
	f.DurationVar(&o.grace, "grace", 5*time.Second, "time between TERM and KILL when the lock is lost")
	f.BoolVarP(&a.quiet, "quiet", "q", false, "do not report who holds the lock, nor that the period is used up")
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

// options are the options for the library. The hold counts as lost early enough for TERM, grace and KILL to be over
// before the lock can be auto-unlocked.
func (o *runOptions) options(name, command string) ([]mutex.Option, error) {
	if err := o.checkTimes(); err != nil {
		return nil, err
	}
	if err := o.periodFlags.check(&o.takeFlags); err != nil {
		return nil, err
	}
	if o.owner == "" {
		o.owner = filepath.Base(command)
	}
	options, err := o.takeFlags.options(name)
	return append(options, mutex.AlertAfter(o.expect), mutex.AutoUnlockAfter(o.autoUnlockAfter),
		mutex.SafetyMargin(o.margin()), mutex.Heartbeat(o.maxHold)), err
}

func (o *runOptions) margin() time.Duration { return o.grace + time.Second }

func (o *runOptions) checkTimes() error {
	err := times(map[string]time.Duration{
		"expect": o.expect, "auto-unlock-after": o.autoUnlockAfter, "max-hold": o.maxHold, "grace": o.grace,
	})
	switch {
	case err != nil:
		return err
	case o.autoUnlockAfter < 2*o.margin():
		return usagef("--auto-unlock-after is %v, with a --grace of %v it must be at least %v", o.autoUnlockAfter,
			o.grace, 2*o.margin())
	case o.maxHold < o.autoUnlockAfter:
		return usagef("--max-hold is %v, it must not be shorter than --auto-unlock-after, which is %v", o.maxHold,
			o.autoUnlockAfter)
	case o.maxHold < o.expect:
		return usagef("--max-hold is %v, it must not be shorter than --expect, which is %v", o.maxHold, o.expect)
	}
	return nil
}

// job is one run: what is run, under which lock, and who sends it signals.
type job struct {
	*runOptions
	s       *session
	locks   *mutex.Client
	name    string
	path    string
	argv    []string
	signals *childproc.Signals
}

func (o *runOptions) run(ctx context.Context, name string, argv []string) error {
	path, err := childproc.Find(argv[0])
	if err != nil {
		return err
	}
	options, err := o.options(name, path)
	if err != nil {
		return err
	}
	signals := childproc.Catch(ctx)
	defer signals.Stop()
	s, err := o.app.connect()
	if err != nil {
		return err
	}
	defer s.close()
	locks, err := s.locksOf(boundToMachine(), options)
	if err != nil {
		return err
	}
	defer locks.Close() // waits for the cleanup after a wait that was given up
	j := &job{runOptions: o, s: s, locks: locks, name: name, path: path, argv: argv, signals: signals}
	if o.every != 0 {
		return j.once()
	}
	return j.always()
}

// boundToMachine identifies the holder by its machine and its container, not by this process: what the command started
// goes on when mutexctl is killed.
func boundToMachine() *metadata.Process {
	p := holderproc.Self(holderproc.System())
	p.Start = 0
	return &p
}

// always runs the command as soon as the lock can be had.
func (j *job) always() error {
	try := func(ctx context.Context, options ...mutex.Option) (*mutex.Lock, error) {
		return j.locks.TryLock(ctx, j.name, options...)
	}
	wait := func(ctx context.Context, options ...mutex.Option) (*mutex.Lock, error) {
		return j.locks.Lock(ctx, j.name, options...)
	}
	lock, err := take(j.signals.Context(), j.s, j.name, &j.takeFlags, try, wait)
	if err != nil {
		return err
	}
	c, err := j.work(lock)
	err = j.outcome(err, lock.Unlock())
	c.InterruptToo()
	return err
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
	}, held)
	if err != nil {
		return nil, err
	}
	for {
		select {
		case sig := <-j.signals.C():
			c.Signal(sig)
		case <-c.Done():
			return c, passedOn(c.Code())
		case <-lock.Context().Done():
			return c, j.lost(lock, c)
		}
	}
}

// passedOn is the command's status as ours.
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
		return work // the lock is auto-unlocked at the latest
	case errors.Is(unlock, mutex.ErrNotHeld):
		return lostf("the command ended with status %d, but %w", status(work), unlock)
	}
	j.app.note("the lock was not given back: %v", unlock)
	return work
}

// lost ends the command. The lock may still be held: "lost" includes that etcd did not answer in time.
func (j *job) lost(lock *mutex.Lock, c *childproc.Child) error {
	j.app.note("%v; ending the command, at the latest in %v", context.Cause(lock.Context()), j.grace)
	c.End(j.grace)
	return lostf("the command was ended, because the lock was lost")
}

// The variables by which a command knows the lock that it runs under.
const (
	envName  = "MUTEX_NAME"
	envUUID  = "MUTEX_UUID"
	envToken = "MUTEX_TOKEN"
)

func lockEnvironment(lock *mutex.Lock) []string {
	return append(os.Environ(), envName+"="+lock.Name(), envUUID+"="+lock.UUID(),
		fmt.Sprintf("%s=%d", envToken, lock.Token()))
}
