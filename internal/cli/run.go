package cli

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/clustermutex/unlocker/internal/cli/childproc"
	"github.com/clustermutex/unlocker/internal/flags"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/internal/witness/holderproc"
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
	onAsk           onAsk
	leaveChildren   bool
}

func newRun(a *app) *cobra.Command {
	o := &runOptions{app: a}
	cmd := &cobra.Command{
		Use:        "run NAME -- COMMAND [ARGUMENT...]",
		SuggestFor: []string{"lock", "exec", "acquire"},
		Short:      "Run a command while holding a lock",
		Long: `Take the lock, run the command, release the lock, and exit with the command's status.

While another process holds the lock, run waits in the queue and reports on stderr who holds it. It
extends the lock every 20 seconds or sooner; only "mutexctl alive" postpones the alert. The command finds
MUTEX_NAME, MUTEX_UUID, MUTEX_UNDER (with the uuids of outer runs) and MUTEX_TOKEN in its environment:
have storage reject tokens that are smaller than the largest it has seen.

Signals are forwarded. On Linux, what the command leaves in the background is killed before the lock is
released. When the lock is lost, the command gets TERM, and KILL after --grace. When run is asked to
finish, --on-ask decides: TERM, HUP, INT or QUIT end the command, USR1 or USR2 only tell it, and a shell
command finds MUTEX_ASKED_BY and MUTEX_ASKED_REASON.

More: "mutexctl help exit-codes", and https://github.com/clustermutex/unlocker/blob/main/docs/shell.md.`,
		Example: `  mutexctl run db/migrate --wait 0 --expect 20m --purpose 'ticket OPS-12' -- ./migrate.sh --month 7
  mutexctl run reindex --on-ask TERM --grace 30s -- ./reindex.sh
  */5 * * * *  mutexctl run report --once-per 24h --period-offset 6h --quiet -- ./report.sh   # on each machine`,
		Args: argCount(2, -1, "NAME -- COMMAND"),
	}
	o.takeFlags.add(cmd, waitTimeout{forever: true})
	f := cmd.Flags()
	o.periodFlags.add(f)
	f.StringVar(&o.owner, "owner", "", "`name` of the holder (default: the command's)")
	f.DurationVar(&o.expect, "expect", mutex.DefaultAlertAfter, "raise an alert when the command runs longer than this")
	f.DurationVar(&o.autoUnlockAfter, "auto-unlock-after", 10*time.Minute,
		"how long after its last extension the lock is auto-unlocked; also how long etcd may be away")
	f.DurationVar(&o.maxHold, "max-hold", 24*time.Hour,
		"how long to extend the lock; then it is lost and the command is ended")
	f.DurationVar(&o.grace, "grace", 5*time.Second,
		"time from TERM to KILL, also for what is left behind; less for a short hold")
	flags.Positive(f, "expect", "auto-unlock-after", "max-hold", "grace")
	f.BoolVar(&o.leaveChildren, "leave-children", false,
		"let what the command starts outlive it and its lock; no witness proves its end then")
	f.Func("on-ask", "`action` when asked to finish: a signal for the command, or a shell command to run", o.onAsk.parse)
	f.BoolVarP(&a.quiet, "quiet", "q", false, "do not report that the lock is held or the period is used up")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if cmd.ArgsLenAtDash() != 1 {
			return usageErrorf("want the name, then --, then the command: mutexctl run NAME -- COMMAND%s",
				shellHint(args[1:]))
		}
		name, err := o.names.parseValid(args[0])
		if err != nil {
			return err
		}
		err = o.run(cmd.Context(), name, args[1:])
		if o.given.Changed("skip-status") {
			return a.notFree(err, o.skipStatus)
		}
		return a.notFree(err, ExitHeld)
	}
	return cmd
}

// shellHint returns how to run a command that is a shell's, in one argument; empty if it is none.
func shellHint(argv []string) string {
	if len(argv) != 1 || !strings.ContainsAny(argv[0], " ;|&<>$") {
		return ""
	}
	return "; for a command of the shell: sh -c " + text.ShellWord(argv[0])
}

// options returns the options for the library. The safety margin leaves time for TERM, the grace period and KILL before
// the lock can be auto-unlocked.
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

// minGrace is the shortest grace that is chosen for a short hold.
const minGrace = 200 * time.Millisecond

func (o *runOptions) margin() time.Duration { return o.grace + time.Second }

func (o *runOptions) checkTimes() error {
	if !o.given.Changed("expect") {
		o.expect = min(o.expect, o.maxHold)
	}
	flag := "auto-unlock-after"
	if !o.given.Changed(flag) && o.maxHold < o.autoUnlockAfter {
		flag = "max-hold"
		o.autoUnlockAfter = o.maxHold
	}
	if !o.given.Changed("grace") { // a short hold has a short grace
		o.grace = max(minGrace, min(o.grace, o.autoUnlockAfter/2-time.Second))
	}
	switch {
	case o.autoUnlockAfter < 2*o.margin():
		return usageErrorf("--%s is %v, with a --grace of %v it must be at least %v", flag, o.autoUnlockAfter,
			o.grace, 2*o.margin())
	case o.maxHold < o.autoUnlockAfter:
		return usageErrorf("--max-hold is %v: it must not be shorter than --auto-unlock-after, which is %v", o.maxHold,
			o.autoUnlockAfter)
	case o.maxHold < o.expect:
		return usageErrorf("--max-hold is %v: it must not be shorter than --expect, which is %v", o.maxHold, o.expect)
	}
	return nil
}

func (o *runOptions) run(ctx context.Context, name string, argv []string) error {
	path, err := childproc.Find(argv[0])
	if err != nil {
		return fmt.Errorf("%w%s", err, shellHint(argv))
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
	group := o.group(name)
	defer group.Close()
	locks, err := s.locks(holderProcess(group), options...)
	if err != nil {
		return err
	}
	defer locks.Close() // waits for the cleanup after a wait that was given up
	j := &job{runOptions: o, s: s, locks: locks, name: name, path: path, argv: argv, signals: signals, group: group}
	if o.every != 0 || !o.tick.IsZero() {
		return j.runOnce()
	}
	return j.runAlways()
}

// group creates a cgroup for the command; nil if that is not possible.
func (o *runOptions) group(name string) *childproc.Group {
	if o.leaveChildren {
		return nil
	}
	group, err := childproc.NewGroup(name)
	if err != nil {
		log := o.app.log()
		log.Info().Err(err).Msg("the command has no cgroup of its own: processes that it starts may outlive it " +
			"and its lock, and no witness can prove that they have ended")
	}
	return group
}

// holderProcess identifies the holder by this process and the cgroup of its command. Without a cgroup it leaves out the
// process, because processes of the command may outlive it, and names only the machine and the container.
func holderProcess(group *childproc.Group) *metadata.Process {
	p := holderproc.Self(holderproc.System())
	if p.CgroupID = group.ID(); p.CgroupID != 0 {
		p.SupervisorStart = p.Start
	}
	p.Start = 0
	return &p
}

// runAlways takes the lock, waiting if necessary, and runs the command.
func (j *job) runAlways() error {
	acquire := j.locks.Lock
	if j.wait.triesOnce() {
		acquire = j.locks.TryLock
	}
	lock, err := take(j.signals.Context(), j.s, j.name, &j.takeFlags,
		func(ctx context.Context, options ...mutex.Option) (*mutex.Lock, error) {
			return acquire(ctx, j.name, options...)
		})
	if err != nil {
		return err
	}
	c, err := j.runCommand(lock)
	err = j.outcome(err, lock.Unlock())
	c.AfterRelease()
	return err
}
