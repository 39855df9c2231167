package cli

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/clustermutex/unlocker/internal/cli/childproc"
	"github.com/clustermutex/unlocker/internal/diagnosis/fate"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/internal/witness/holderproc"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/mutex"
	"github.com/clustermutex/unlocker/pkg/staleness"
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
		Use:   "run NAME -- COMMAND [ARGUMENT...]",
		Short: "Run a command while holding a lock",
		Long: `Take the lock, run the command, release the lock, and exit with the command's status.

While another process holds the lock, run waits in the queue (--wait) and reports on stderr who
holds it, until when, and how many are ahead: whenever that changes, and every half minute. With
--wait given, it also waits for an unreachable etcd. While the command runs, mutexctl extends the lock
every 20 seconds or sooner, up to --max-hold. A command that runs longer than --expect raises an
alert: extending the lock does not delay it, only "mutexctl alive" does.

With --semaphore N, at most N run at a time across all machines; everyone should give the same N.
With --shared many may read at a time; with --exclusive one writes and nobody reads. All wait in the
same queue.

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
it ends.

On Linux the command also has a cgroup of its own, which nothing that it starts can leave: a systemd
scope where systemd runs, else one below mutexctl's own, if it may create one. What the command leaves
in the background is killed before the lock is released; after a forwarded signal, it has --grace to
end by itself. If mutexctl itself is killed, so is all of it, with KILL. With --leave-children, what is
left runs on without the lock. So it does where no cgroup can be created, as on other systems; run says
why at --log.level=info.

When the lock is lost, because it was removed or etcd was unreachable for too long, the group gets
TERM, and KILL after --grace. If time ran out, both happen before the lock can be auto-unlocked: by
default after nine and a half minutes without etcd, so an outage of five minutes ends nothing.
A lock that an operator removed may have a new holder at once; then only the token protects the data.

When run is asked to finish, it reports by whom and why on stderr, and the command goes on. With
--on-ask=TERM (or HUP, INT, QUIT) the group then gets that signal, and KILL after --grace; with USR1
or USR2 it gets the signal and ends when it likes. Anything else is a shell command that run starts
once, with MUTEX_ASKED_BY and MUTEX_ASKED_REASON in its environment; it is killed when the command
ends. In each case the lock is released when the command has ended, and run exits with the command's
own status: 143 if TERM ended it, 0 if it tidied up and exited with 0.

If mutexctl itself is killed with KILL, the lock stays until it is auto-unlocked: ten minutes after
its last extension (--auto-unlock-after). A witness on the machine proves the end at once: mutexctl is
gone and its cgroup is empty. Without a cgroup, on Linux the kernel then kills the command, but not
what the command started: only the end of the container or a reboot proves the end.
If mutexctl is stopped with STOP, the command works on unwatched: send signals to the command's group
instead.

On Windows, Ctrl-C, Ctrl-Break, and the end of the window or session reach the command as Ctrl-Break,
and so does --on-ask=TERM or INT; it has no other signals. When the lock is lost, the command gets
Ctrl-Break, and after --grace it is ended with all that it started, as they are if mutexctl is killed.

Exits with the command's own status; with 3 if the lock was not free in time and the command did not
start, 5 if the lock was lost, 126 or 127 if the command cannot be started: see
"mutexctl help exit-codes".`,
		Example: `  mutexctl run nightly/report -- ./report.sh
  mutexctl run nightly/report --wait 0 --purpose 'monthly report, ticket OPS-12' -- ./report.sh --month 7
  mutexctl run db/migrate --expect 20m --max-hold 2h --attr build=1234 -- ./migrate.sh
  mutexctl run reindex --on-ask TERM --grace 30s -- ./reindex.sh
  mutexctl run transcoding --semaphore 3 -- ffmpeg -i in.mov out.mp4
  */5 * * * *  mutexctl run daily/report --once-per 24h --period-offset 6h --quiet -- ./report.sh   # on each replica`,
		Args: wants(2, -1, "NAME -- COMMAND"),
	}
	o.takeFlags.add(cmd, waitTimeout{forever: true})
	f := cmd.Flags()
	o.periodFlags.add(f)
	f.StringVar(&o.owner, "owner", "", "`name` of the holder (default: the command's)")
	f.DurationVar(&o.expect, "expect", mutex.DefaultAlertAfter, "raise an alert when the command runs longer than this")
	f.DurationVar(&o.autoUnlockAfter, "auto-unlock-after", 10*time.Minute,
		"when the lock is auto-unlocked after its last extension, should this machine die; also how long etcd may "+
			"be away")
	f.DurationVar(&o.maxHold, "max-hold", 24*time.Hour,
		"how long to extend the lock; after that it is lost and the command is ended")
	f.DurationVar(&o.grace, "grace", 5*time.Second,
		"time between TERM and KILL; after a forwarded signal, for what the command leaves behind")
	f.BoolVar(&o.leaveChildren, "leave-children", false,
		"let what the command starts outlive it and its lock; its end then proves nothing to a witness")
	f.Var(&o.onAsk, "on-ask", "what to do when asked to finish: a signal for the command, or a shell command")
	f.BoolVarP(&a.quiet, "quiet", "q", false, "do not report who holds the lock or that the period is used up")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if cmd.ArgsLenAtDash() != 1 {
			return usagef("want the name, then --, then the command: mutexctl run NAME -- COMMAND")
		}
		name, err := o.names.parseValid(args[0])
		if err != nil {
			return err
		}
		return o.run(cmd.Context(), name, args[1:])
	}
	return cmd
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

func (o *runOptions) margin() time.Duration { return o.grace + time.Second }

func (o *runOptions) checkTimes() error {
	err := times(map[string]time.Duration{
		"expect": o.expect, "auto-unlock-after": o.autoUnlockAfter, "max-hold": o.maxHold, "grace": o.grace,
	})
	if err != nil {
		return err
	}
	if !o.given.Changed("expect") {
		o.expect = min(o.expect, o.maxHold)
	}
	flag := "auto-unlock-after"
	if !o.given.Changed(flag) && o.maxHold < o.autoUnlockAfter {
		flag = "max-hold"
		o.autoUnlockAfter = o.maxHold
	}
	switch {
	case o.autoUnlockAfter < 2*o.margin():
		return usagef("--%s is %v, with a --grace of %v it must be at least %v", flag, o.autoUnlockAfter,
			o.grace, 2*o.margin())
	case o.maxHold < o.autoUnlockAfter:
		return usagef("--max-hold is %v: it must not be shorter than --auto-unlock-after, which is %v", o.maxHold,
			o.autoUnlockAfter)
	case o.maxHold < o.expect:
		return usagef("--max-hold is %v: it must not be shorter than --expect, which is %v", o.maxHold, o.expect)
	}
	return nil
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
	group := o.group(name)
	defer group.Close()
	locks, err := s.locksOf(holder(group), options)
	if err != nil {
		return err
	}
	defer locks.Close() // waits for the cleanup after a wait that was given up
	j := &job{app: o.app, s: s, locks: locks, name: name, path: path, argv: argv, take: &o.takeFlags,
		period: &o.periodFlags, grace: o.grace, onAsk: o.onAsk, signals: signals, group: group}
	if o.every != 0 {
		return j.once()
	}
	return j.always()
}

// group makes a cgroup for the command. Where that is not possible, the command does without.
func (o *runOptions) group(name string) *childproc.Group {
	if o.leaveChildren {
		return nil
	}
	group, err := childproc.NewGroup(name)
	if err != nil {
		log := o.app.log()
		log.Info().Err(err).Msg("the command has no cgroup of its own: what it starts may outlive it and its lock, " +
			"and no witness can prove the end of that")
	}
	return group
}

// holder identifies the holder by this process and the cgroup of its command. Without one it names only the machine and
// the container: what the command started goes on when mutexctl is killed.
func holder(group *childproc.Group) *metadata.Process {
	p := holderproc.Self(holderproc.System())
	if p.CgroupID = group.ID(); p.CgroupID == 0 {
		p.Start = 0
	}
	return &p
}

// always takes the lock and runs the command.
func (j *job) always() error {
	try := func(ctx context.Context, options ...mutex.Option) (*mutex.Lock, error) {
		return j.locks.TryLock(ctx, j.name, options...)
	}
	wait := func(ctx context.Context, options ...mutex.Option) (*mutex.Lock, error) {
		return j.locks.Lock(ctx, j.name, options...)
	}
	lock, err := take(j.signals.Context(), j.s, j.name, j.take, try, wait)
	if err != nil {
		return err
	}
	c, err := j.work(lock)
	err = j.outcome(err, lock.Unlock())
	c.InterruptToo()
	return err
}

// maxUnlockers is how many presence records are looked at: more than any installation runs.
const maxUnlockers = 100

// presence is the presence record of an unlocker, which may be over or forged.
type presence struct {
	metadata.Presence
	lease int64
}

// running returns the unlockers among these that run: those whose lease is too short to outlive its unlocker for long.
func (s *session) running(ctx context.Context, announced []presence) ([]metadata.Presence, error) {
	var all []metadata.Presence
	for _, p := range announced[:min(len(announced), maxUnlockers)] {
		request, cancel := s.request(ctx)
		granted, err := s.store.Granted(request, p.lease)
		cancel()
		if err != nil {
			return nil, s.explain(ctx, "read the leases of the unlockers", err)
		}
		if 0 < granted && granted <= protocol.PresenceTTL {
			all = append(all, p.Presence)
		}
	}
	return all, nil
}

// fate reads what the unlockers do to stale locks, for commands that look at one lock.
func (s *session) fate(ctx context.Context) (fate.Fate, error) {
	request, cancel := s.request(ctx)
	defer cancel()
	var announced []presence
	err := s.store.ListPrefix(request, s.layout.Unlockers(), 0, func(kv protocol.KV) {
		if p, ok := announcedBy(s.layout.Parse(kv.Key).ID, kv); ok {
			announced = append(announced, p)
		}
	})
	if err != nil {
		return fate.Fate{}, s.explain(ctx, "read the unlockers", err)
	}
	running, err := s.running(ctx, announced)
	return fate.Of(running), err
}

// announcedBy reads a presence record. One without a lease would outlive its unlocker, so it proves nothing.
func announcedBy(id string, kv protocol.KV) (presence, bool) {
	p := protocol.ReadPresence(id, kv.Value)
	if p == nil || kv.Lease == 0 {
		return presence{}, false
	}
	return presence{*p, kv.Lease}, true
}

// judgeBy judges the lock by our own clock, and by what the unlockers publish. Defaults for records without readable
// deadlines count from when an unlocker saw the lock, which is not known here, so such a lock is malformed. The grace
// of abandoned locks is counted from when the witness wrote its statement.
func judgeBy(p staleness.Policy, r *metadata.Record, now time.Time) staleness.Verdict {
	p.DefaultAlertAfter = 0
	p.DefaultAutoUnlockAfter = 0
	return staleness.Judge(stated(r, now), p, staleness.Moment{Wall: now})
}

// stated is the record as an observer sees it whose monotonic clock is 0 now, and who saw the statement when it was
// written.
func stated(r *metadata.Record, now time.Time) *metadata.Record {
	if r.Death == nil || r.Death.At.IsZero() {
		return r
	}
	death := *r.Death
	death.Seen = min(0, death.At.Sub(now))
	seen := *r
	seen.Death = &death
	return &seen
}

// fateOf says what the unlockers do to the lock that needs saying; empty if they remove it at its deadline.
func fateOf(f *fate.Fate, r *metadata.Record) string {
	abandoned := r.Proven()
	switch {
	case f == nil || r.Misplaced:
		return ""
	case f.Unlockers == 0:
		return "none has announced itself: no lock is removed"
	case !f.Removes:
		return "only watch (" + text.Visible(f.Watching) + "): no lock is removed"
	case f.Excludes(r.Name):
		return "exclude it by name (sweep.exclude)"
	case abandoned && f.Policy.UnlockAbandoned:
		return fmt.Sprintf("remove it %v after they see the proof", f.Policy.AbandonedGrace)
	case abandoned && !f.Known():
		return "whether they remove it now " + unknownFate(f)
	case abandoned:
		return "only report it: sweep.abandoned is report"
	}
	return ""
}

func unknownFate(f *fate.Fate) string {
	if len(f.Silent) == 1 {
		return "is unknown: " + fate.Names(f.Silent) + " does not publish its policy"
	}
	return "is unknown: " + fate.Names(f.Silent) + " do not publish their policy"
}

func ofAbandoned(f *fate.Fate) string {
	switch {
	case f.Unlockers == 0:
		return "no unlocker has announced itself, so no abandoned lock is removed"
	case !f.Removes:
		return "the unlockers only watch (" + text.Visible(f.Watching) + "), so no abandoned lock is removed"
	case f.Policy.UnlockAbandoned:
		return fmt.Sprintf("the unlockers remove abandoned locks %v after they see the proof", f.Policy.AbandonedGrace)
	case !f.Known():
		return "whether the unlockers remove abandoned locks " + unknownFate(f)
	}
	return "the unlockers only report abandoned locks, until their deadlines"
}
