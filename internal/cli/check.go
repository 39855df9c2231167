package cli

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/clustermutex/unlocker/internal/certificate"
	"github.com/clustermutex/unlocker/internal/diagnosis"
	"github.com/clustermutex/unlocker/internal/etcdconn"
	"github.com/clustermutex/unlocker/internal/flags"
	"github.com/clustermutex/unlocker/internal/headline"
	"github.com/clustermutex/unlocker/internal/locks"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// The statuses of a plugin for Nagios and Icinga.
const (
	pluginOK = iota
	pluginWarning
	pluginCritical
	pluginUnknown
)

type checkOptions struct {
	listing
	timeout, expiredAfter      time.Duration
	unclaimedAfter             time.Duration
	clockDifference            time.Duration
	noUnlocker                 bool
	warnAlerting, critAlerting int
	warnWaiting, critWaiting   int
}

// noThreshold is the value of a threshold that is turned off.
const noThreshold = -1

func newCheck(a *app) *cobra.Command {
	o := &checkOptions{listing: listing{app: a, about: locks.AboutLocks}}
	cmd := &cobra.Command{
		Use:   "check [QUERY...]",
		Short: "Check locks and unlockers, as a Nagios and Icinga plugin",
		Long: `Check the locks and the unlockers once and print one line: the most urgent problem, worded as in
"mutexctl list" and on the dashboard, what else is wrong, and performance data.

  0 OK        no lock is late, and an unlocker is running
  1 WARNING   a lock is expired or abandoned; too many locks are alerting or malformed (--warn-alerting);
              too many processes wait (--warn-waiting); holders wait for each other; a lock has more
              holders than it allows, or a lock delay that never ends; a lock is free, but the first in
              line does not take it; no unlocker can remove locks now; unlockers disagree; the clock of
              an unlocker or a holder differs from this machine's; etcd is too old; or a certificate,
              our own or etcd's, should have been renewed: it ends within two weeks
  2 CRITICAL  a lock that unlockers do not exclude has been expired for longer than --expired-after; too
              many locks alert or processes wait (--crit-alerting, --crit-waiting); etcd has raised an
              alarm, as when it is full; or no unlocker has announced itself for 15 seconds
  3 UNKNOWN   etcd is unreachable or did not answer within --timeout, or an argument is wrong

While a lock is free but has waiters, check looks again until --unclaimed-after has passed. A dead waiter
can stay first in line for ten seconds, so repeat the check before you page anyone.

A threshold is the highest acceptable number; -1 turns it off.
A QUERY selects locks: see "mutexctl help query". A word is a part of a name, so write name:=billing/nightly
for one lock.`,
		Example: `  mutexctl check
  mutexctl check 'billing/* -owner:test' --no-unlocker --crit-alerting 5
  mutexctl check --timeout 5s --warn-waiting 20 --crit-waiting 100`,
	}
	f := cmd.Flags()
	f.DurationVar(&o.timeout, "timeout", 10*time.Second, "timeout for all of etcd's answers in one round")
	f.DurationVar(&o.expiredAfter, "expired-after", 5*time.Minute, "critical when a lock has been expired for longer")
	f.DurationVar(&o.unclaimedAfter, "unclaimed-after", 5*time.Second,
		"warn when a lock with waiters stays free for this long; 0 turns this off")
	f.IntVar(&o.warnAlerting, "warn-alerting", 0,
		"warn when more locks alert or are malformed, expired or abandoned; the last two always warn")
	f.IntVar(&o.critAlerting, "crit-alerting", noThreshold,
		"critical when more locks are alerting, abandoned, expired or malformed")
	f.IntVar(&o.warnWaiting, "warn-waiting", noThreshold, "warn when more processes wait for locks")
	f.IntVar(&o.critWaiting, "crit-waiting", noThreshold, "critical when more processes wait for locks")
	f.BoolVar(&o.noUnlocker, "no-unlocker", false, "do not check the unlockers")
	f.DurationVar(&o.clockDifference, "clock-difference", 30*time.Second,
		"warn when an unlocker's clock differs from this one by more")
	flags.Positive(f, "timeout", "clock-difference")
	o.fromArguments(cmd, o.run)
	return cmd
}

func (o *checkOptions) check() error {
	if unknown := o.unknownKey(0); unknown != "" { // it would find nothing, which looks as if all were well
		return usageErrorf("%s", unknown)
	}
	if o.unclaimedAfter > time.Minute {
		return usageErrorf("--unclaimed-after is %v: check waits for that long, at most 1m", o.unclaimedAfter)
	}
	return cmp.Or(checkThresholds("alerting", o.warnAlerting, o.critAlerting),
		checkThresholds("waiting", o.warnWaiting, o.critWaiting))
}

func checkThresholds(of string, warn, crit int) error {
	switch {
	case warn < noThreshold:
		return usageErrorf("--warn-%s is %d: it must not be negative, or -1 for no threshold", of, warn)
	case crit < noThreshold:
		return usageErrorf("--crit-%s is %d: it must not be negative, or -1 for no threshold", of, crit)
	case exceeds(warn, crit):
		return usageErrorf("--warn-%s is %d: it must not be greater than --crit-%s, which is %d", of, warn, of, crit)
	}
	return nil
}

// asPlugin reports an error of check as plugins do: on stdout, with the status unknown.
func (a *app) asPlugin(cmd *cobra.Command, err error) error {
	if cmd.Name() != "check" || err == nil || isReported(err) {
		return err
	}
	fmt.Fprintf(a.Stdout, "LOCKS UNKNOWN: %s\n", replaceBars(text.Prose(err.Error())))
	return commandStatus(pluginUnknown)
}

func (o *checkOptions) run(ctx context.Context) error {
	if err := o.check(); err != nil {
		return err
	}
	h, err := o.readAndJudge(ctx)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(o.app.Stdout, "LOCKS %s | %s\n", h.sentence(), h.performance(o)); err != nil {
		return err
	}
	return commandStatus(h.status)
}

// readAndJudge reads all locks, again if a lock with waiters is free, and judges them.
func (o *checkOptions) readAndJudge(ctx context.Context) (*health, error) {
	opening, cancel := o.withTimeout(ctx)
	defer cancel()
	s, err := o.app.open(opening)
	if err != nil {
		return nil, err
	}
	defer s.close()
	all, err := s.snapshot(opening)
	if err != nil {
		return nil, err
	}
	member := etcdconn.ReadMember(opening, s.client.ActiveConnection())
	free, all, err := o.unclaimed(ctx, s, all)
	if err != nil {
		return nil, err
	}
	now := o.app.Now()
	some, err := all.model(all.combined, now).Filter(ctx, o.query, now)
	if err != nil {
		return nil, err
	}
	h := o.judge(all, some)
	for _, warning := range []string{member.WhyOutdated,
		certificate.Warning("The client certificate "+o.app.etcd.Cert, o.app.etcd.ClientCertificate(), now),
		certificate.Warning("The certificate of etcd", member.Certificate, now)} {
		if warning != "" {
			h.addFinding(pluginWarning, "%s", warning)
		}
	}
	c := headline.InputOf(some, all.unlockers, now)
	c.Unclaimed = free
	c.Inconsistent = nil // they are findings
	// A full etcd keeps unlockers from announcing themselves, so their absence then proves nothing.
	c.IgnoreUnlockers = o.noUnlocker || len(all.alarms) > 0
	v := headline.For(c)
	if len(free) > 0 || v.Class == locks.ClassDeadlock {
		h.raise(pluginWarning)
	}
	h.headline = v.String(now)
	h.nothingWrong = v.Class == locks.ClassOnTime || v.IsInconsistent
	if h.nothingWrong && len(o.query.Terms) > 0 && len(some.Rows)+len(some.Queues) == 0 {
		h.headline = "All is well: no lock matches."
	}
	return h, nil
}

// alarms returns the alarms that etcd has raised, as sentences; none if they cannot be read.
func (s *session) alarms(ctx context.Context) []string {
	request, cancel := s.request(ctx)
	defer cancel()
	raised, _ := etcdconn.Alarms(request, s.client)
	var all []string
	for _, alarm := range raised {
		if sentence := etcdconn.ExplainAlarm(alarm); !slices.Contains(all, sentence) {
			all = append(all, sentence)
		}
	}
	return all
}

func (o *checkOptions) withTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, o.timeout, fmt.Errorf("etcd did not answer within %v", o.timeout))
}

// handOverTime is how long after a release nearly every lock has its next holder.
const handOverTime = 500 * time.Millisecond

// unclaimed returns, by name, the locks that stay free for --unclaimed-after with the same waiter first in line, and
// the last snapshot. It does not wait if no lock with waiters is free.
func (o *checkOptions) unclaimed(ctx context.Context, s *session,
	all *snapshot) (stayed []diagnosis.Unclaimed, last *snapshot, err error) {
	free := all.free()
	now := o.app.Now()
	model := all.model(all.combined, now)
	maps.DeleteFunc(free, func(lock string, _ metadata.Waiter) bool { return !model.Finds(o.query, lock, now) })
	began := time.Now()
	for _, after := range []time.Duration{min(handOverTime, o.unclaimedAfter), o.unclaimedAfter} {
		if len(free) == 0 || o.unclaimedAfter == 0 {
			return nil, all, nil
		}
		sleep(ctx, after-time.Since(began))
		again, cancel := o.withTimeout(ctx)
		all, err = s.snapshot(again)
		cancel()
		if err != nil {
			return nil, nil, err
		}
		still := all.free()
		maps.DeleteFunc(free, func(lock string, first metadata.Waiter) bool { return still[lock].ID != first.ID })
	}
	for _, lock := range slices.Sorted(maps.Keys(free)) {
		queue := all.view.Queues()[lock]
		stayed = append(stayed, diagnosis.Unclaimed{Name: lock, Since: began, Waiters: len(queue), First: queue[0]})
	}
	return stayed, all, nil
}

// free returns the locks that could be taken, each with its first in line.
func (all *snapshot) free() map[string]metadata.Waiter {
	since, _, _ := all.view.Free()
	first := make(map[string]metadata.Waiter, len(since))
	for lock := range since {
		first[lock] = all.view.Queues()[lock][0]
	}
	return first
}

func waitingText(n int) string { return fmt.Sprintf("%d waiting", n) }
