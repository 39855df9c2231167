package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/clustermutex/unlocker/internal/etcdconn"
	"github.com/clustermutex/unlocker/internal/fate"
	"github.com/clustermutex/unlocker/internal/inconsistent"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

// The statuses of a plugin for Nagios and Icinga.
const (
	pluginOK = iota
	pluginWarning
	pluginCritical
	pluginUnknown
)

type checkOptions struct {
	app                        *app
	globs                      globs
	timeout, expiredAfter      time.Duration
	unclaimedAfter             time.Duration
	clockDifference            time.Duration
	noUnlocker                 bool
	warnAlerting, critAlerting int
	warnWaiting, critWaiting   int
}

// off is a threshold that nothing exceeds.
const off = -1

func newCheck(a *app) *cobra.Command {
	o := &checkOptions{app: a}
	cmd := &cobra.Command{
		Use:   "check [PATTERN...]",
		Short: "Check locks and unlockers, as a Nagios and Icinga plugin",
		Long: `Check the locks and the unlockers once and report in one line, with performance data.

  0 OK        all locks are held in time, and an unlocker watches over them
  1 WARNING   a lock is expired or abandoned; too many are alerting or malformed (--warn-alerting) or waited
              for (--warn-waiting); a lock has more holders than it allows, or a lock delay without
              end; a lock is free, and the first in line does not take it; no unlocker
              can remove locks at the moment; unlockers disagree; or the clock of an unlocker or a
              holder differs from this machine's
  2 CRITICAL  a lock that unlockers do not exclude is still expired after --expired-after; too many
              alert or wait (--crit-alerting, --crit-waiting); etcd has raised an alarm, as when it is
              full; or no unlocker has announced itself, which shows 15 seconds after the last one wrote
  3 UNKNOWN   etcd is unreachable or did not answer within --timeout, or an argument is wrong

While a lock is free although somebody waits for it, check looks again until --unclaimed-after has passed. A
waiter that has just died can be the first in line for ten seconds, so repeat the check before you wake anybody.

Other commands have other exit statuses. A threshold is the highest acceptable number; -1 is none.
A PATTERN selects names: * stands for any text, slashes included, ? for one character.`,
		Example: `  mutexctl check
  mutexctl check 'billing/*' --no-unlocker --crit-alerting 5
  mutexctl check --timeout 5s --warn-waiting 20 --crit-waiting 100`,
	}
	f := cmd.Flags()
	f.DurationVar(&o.timeout, "timeout", 10*time.Second, "how long etcd may take for all answers of one look")
	f.DurationVar(&o.expiredAfter, "expired-after", 5*time.Minute, "critical when a lock is expired for longer")
	f.DurationVar(&o.unclaimedAfter, "unclaimed-after", 5*time.Second,
		"warn when a lock that somebody waits for stays free for as long; 0 turns this off")
	f.IntVar(&o.warnAlerting, "warn-alerting", 0,
		"warn when more locks are alerting, abandoned, expired or malformed; any expired or abandoned one is a warning")
	f.IntVar(&o.critAlerting, "crit-alerting", off,
		"critical when more locks are alerting, abandoned, expired or malformed")
	f.IntVar(&o.warnWaiting, "warn-waiting", off, "warn when more processes wait for locks")
	f.IntVar(&o.critWaiting, "crit-waiting", off, "critical when more processes wait for locks")
	f.BoolVar(&o.noUnlocker, "no-unlocker", false, "do not check the unlockers")
	f.DurationVar(&o.clockDifference, "clock-difference", 30*time.Second,
		"warn when an unlocker's clock differs from this one by more")
	o.globs.fromArguments(cmd, o.run)
	return cmd
}

func (o *checkOptions) check() error {
	for name, n := range map[string]int{
		"warn-alerting": o.warnAlerting, "crit-alerting": o.critAlerting, "warn-waiting": o.warnWaiting,
		"crit-waiting": o.critWaiting,
	} {
		if n < off {
			return usagef("--%s is %d, it must not be negative, or -1 for no threshold", name, n)
		}
	}
	switch {
	case contradict(o.warnAlerting, o.critAlerting):
		return usagef("--warn-alerting is %d, it must not be greater than --crit-alerting, which is %d", o.warnAlerting,
			o.critAlerting)
	case contradict(o.warnWaiting, o.critWaiting):
		return usagef("--warn-waiting is %d, it must not be greater than --crit-waiting, which is %d", o.warnWaiting,
			o.critWaiting)
	case o.expiredAfter < 0:
		return usagef("--expired-after is %v, it must not be negative", o.expiredAfter)
	case o.unclaimedAfter < 0 || o.unclaimedAfter > time.Minute:
		return usagef("--unclaimed-after is %v, it must be from 0 to 1m", o.unclaimedAfter)
	}
	return times(map[string]time.Duration{"timeout": o.timeout, "clock-difference": o.clockDifference})
}

func contradict(warn, crit int) bool { return warn != off && crit != off && warn > crit }

// asPlugin reports an error that kept check from running the way plugins do: on stdout, with the status of a plugin.
func (a *app) asPlugin(cmd *cobra.Command, err error) error {
	if cmd.Name() != "check" || status(err) != ExitUsage || isPluginStatus(err) {
		return err
	}
	return a.unknown(err)
}

// isPluginStatus reports whether the error is a verdict of check, which is already printed.
func isPluginStatus(err error) bool {
	s, ok := errors.AsType[*statusError](err)
	return ok && s.err == nil
}

func (a *app) unknown(err error) error {
	fmt.Fprintf(a.Stdout, "LOCKS UNKNOWN: %s\n", withoutBar(text.Prose(err.Error())))
	return &statusError{status: pluginUnknown}
}

func (o *checkOptions) run(ctx context.Context) error {
	if err := o.check(); err != nil {
		return err
	}
	v, err := o.lookAtAll(ctx)
	if err != nil {
		return o.app.unknown(err)
	}
	if _, err := fmt.Fprintf(o.app.Stdout, "LOCKS %s | %s\n", v.sentence(), v.performance(o)); err != nil {
		return err
	}
	if v.status == pluginOK {
		return nil
	}
	return &statusError{status: v.status}
}

// lookAtAll reads everything, as often as it takes, and judges it.
func (o *checkOptions) lookAtAll(ctx context.Context) (*health, error) {
	opening, cancel := o.limited(ctx)
	defer cancel()
	s, err := o.app.open(opening)
	if err != nil {
		return nil, late(opening, err)
	}
	defer s.close()
	all, err := s.snapshot(opening)
	if err != nil {
		return nil, late(opening, err)
	}
	alarms := s.alarms(opening)
	free, all, err := o.unclaimed(ctx, s, all)
	if err != nil {
		return nil, err
	}
	v := o.judge(all, alarms)
	o.judgeUnclaimed(v, all, free)
	return v, nil
}

// alarms says what etcd itself complains about; nothing if that is not known.
func (s *session) alarms(ctx context.Context) []string {
	request, cancel := s.request(ctx)
	defer cancel()
	raised, _ := etcdconn.Alarms(request, s.client)
	var all []string
	for _, alarm := range raised {
		if said := alarm.Explain(); !slices.Contains(all, said) {
			all = append(all, said)
		}
	}
	return all
}

// look reads everything once more.
func (o *checkOptions) look(ctx context.Context, s *session) (*snapshot, error) {
	ctx, cancel := o.limited(ctx)
	defer cancel()
	all, err := s.snapshot(ctx)
	return all, late(ctx, err)
}

func (o *checkOptions) limited(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, o.timeout, fmt.Errorf("etcd did not answer within %v", o.timeout))
}

// late is err or, if the time was up, that.
func late(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// health is what check found.
type health struct {
	status    int
	counts    map[staleness.State]int
	waiters   int
	unlockers int
	general   []string                     // problems that are not about single locks
	clocks    []string                     // about holders whose clocks are off
	unhealthy map[staleness.State][]string // about locks that need attention
}

func (h *health) raise(status int) { h.status = max(h.status, status) }

// found adds a general problem.
func (h *health) found(status int, format string, args ...any) {
	h.raise(status)
	h.general = append(h.general, fmt.Sprintf(format, args...))
}

func (o *checkOptions) judge(all *snapshot, alarms []string) *health {
	h := &health{
		counts: map[staleness.State]int{}, unhealthy: map[staleness.State][]string{}, unlockers: len(all.unlockers),
	}
	for _, alarm := range alarms {
		h.found(pluginCritical, "%s", alarm)
	}
	if !o.noUnlocker {
		o.judgeUnlockers(h, all.unlockers)
	}
	o.judgeConsistency(h, all)
	o.judgeLocks(h, all)
	for lock, waiters := range all.waiters {
		if o.globs.match(lock) {
			h.waiters += len(waiters)
		}
	}
	switch {
	case exceeds(h.waiters, o.critWaiting):
		h.found(pluginCritical, "%d wait for locks", h.waiters)
	case exceeds(h.waiters, o.warnWaiting):
		h.found(pluginWarning, "%d wait for locks", h.waiters)
	}
	return h
}

func exceeds(n, threshold int) bool { return threshold != off && n > threshold }

func (o *checkOptions) judgeUnlockers(h *health, all []metadata.Presence) {
	switch {
	case len(all) == 0 && h.status == pluginCritical: // an etcd that is full keeps them from announcing themselves
		return
	case len(all) == 0:
		h.found(pluginCritical, "no unlocker has announced itself: "+
			"none runs, or none can write to etcd, so nothing is removed")
		return
	}
	if slices.ContainsFunc(all, func(p metadata.Presence) bool { return p.Mode == fate.AutoUnlock }) {
		if text := holdBack(withoutGaps(all)); text != "" {
			h.found(pluginWarning, "%s", text)
		}
	}
	for _, d := range fate.Disagreements(all) {
		h.found(pluginWarning, "the unlockers disagree: %v", d)
	}
	now := o.app.Now()
	for _, p := range all {
		behind := now.Sub(p.Now.Time)
		switch {
		case -behind > o.clockDifference:
			h.found(pluginWarning, "the clock of unlocker %s is %s ahead of the one here", shortText(p.ID),
				text.Duration(-behind))
		case behind > o.clockDifference+protocol.PresenceTTL:
			h.found(pluginWarning, "the clock of unlocker %s is %s behind the one here", shortText(p.ID),
				text.Duration(behind))
		}
	}
}

// judgeConsistency looks for what no client leaves in etcd.
func (o *checkOptions) judgeConsistency(h *health, all *snapshot) {
	held := func(yield func(string, map[string]any) bool) {
		for _, r := range all.locks {
			if r.Token != 0 && !yield(r.Name, r.Attributes) {
				return
			}
		}
	}
	found := slices.DeleteFunc(inconsistent.Find(held, all.delays), func(l inconsistent.Lock) bool {
		return !o.globs.match(l.Name)
	})
	for _, l := range found[:min(len(found), maxNamed)] {
		waiting := ""
		if n := len(all.waiters[l.Name]); n > 0 {
			waiting = fmt.Sprintf(" (%d wait)", n)
		}
		h.found(pluginWarning, "%v%s", l, waiting)
	}
	if more := len(found) - maxNamed; more > 0 {
		h.found(pluginWarning, "%s inconsistent", text.Count(more, "more lock"))
	}
}

func (o *checkOptions) judgeLocks(h *health, all *snapshot) {
	now := o.app.Now()
	unlockers := fate.Of(all.unlockers)
	for _, r := range slices.Concat(all.locks, all.misplaced) {
		if !o.globs.match(r.Name) {
			continue
		}
		verdict := judge(r, now)
		state := verdict.State
		h.counts[state]++
		if clock := clockAhead(verdict); clock != "" {
			h.raise(pluginWarning)
			h.clocks = append(h.clocks, fmt.Sprintf("the clock of %s, who holds %s, is %s", who(r),
				text.Visible(r.Name), clock))
		}
		if state == staleness.Expired {
			h.raise(pluginWarning)
			if now.Sub(r.AutoUnlockAt) > o.expiredAfter && !unlockers.Excludes(r.Name) {
				h.raise(pluginCritical)
			}
		}
		if state == staleness.Abandoned {
			h.raise(pluginWarning)
		}
		if state != staleness.Held && len(h.unhealthy[state]) < maxNamed {
			h.unhealthy[state] = append(h.unhealthy[state], describe(r, state, now))
		}
	}
	switch n := h.needAttention(); {
	case exceeds(n, o.critAlerting):
		h.raise(pluginCritical)
	case exceeds(n, o.warnAlerting):
		h.raise(pluginWarning)
	}
}

// needAttention is the number of locks in another state than held.
func (h *health) needAttention() (n int) {
	for state, locks := range h.counts {
		if state != staleness.Held {
			n += locks
		}
	}
	return n
}

func describe(r *metadata.Record, state staleness.State, now time.Time) string {
	text := text.Visible(r.Name) + " " + string(state)
	switch state {
	case staleness.Alerting:
		text += " since " + age(r.AlertAt, now)
	case staleness.Abandoned:
		text += ": " + protocol.HowItEnded(r.Death, now)
	case staleness.Expired:
		text += " since " + age(r.AutoUnlockAt, now)
	}
	return text + " (" + who(r) + ")"
}

// sentence is the part of the line that a person reads.
func (h *health) sentence() string {
	problems := slices.Concat(h.general, h.clocks[:min(maxNamed, len(h.clocks))])
	unhealthy := slices.Concat(h.unhealthy[staleness.Expired], h.unhealthy[staleness.Malformed],
		h.unhealthy[staleness.Abandoned], h.unhealthy[staleness.Alerting])
	if len(unhealthy) == 0 {
		problems = append(problems, text.Count(h.counts[staleness.Held], "lock")+" held in time")
	}
	unhealthy = unhealthy[:min(maxNamed, len(unhealthy))]
	more := h.needAttention() - len(unhealthy)
	if problems = append(problems, unhealthy...); more > 0 {
		problems = append(problems, fmt.Sprintf("and %d more", more))
	}
	return withoutBar([]string{"OK", "WARNING", "CRITICAL"}[h.status] + ": " + strings.Join(problems, ", "))
}

// performance is the part for graphs: label=value;warn;crit;min;max.
func (h *health) performance(o *checkOptions) string {
	datum := func(label string, n, warn, crit int) string {
		return fmt.Sprintf("%s=%d;%s;%s;0;", label, n, threshold(warn), threshold(crit))
	}
	var data []string
	for _, state := range staleness.States() {
		warn := off
		crit := off
		if state == staleness.Alerting {
			warn = o.warnAlerting
			crit = o.critAlerting
		}
		data = append(data, datum(string(state), h.counts[state], warn, crit))
	}
	return strings.Join(append(data, datum("waiters", h.waiters, o.warnWaiting, o.critWaiting),
		datum("unlockers", h.unlockers, off, off)), " ")
}

func threshold(n int) string {
	if n == off {
		return ""
	}
	return fmt.Sprint(n)
}

// withoutBar keeps text from starting the performance data.
func withoutBar(s string) string { return strings.ReplaceAll(s, "|", "/") }
