package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

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
	app          *app
	globs        globs
	expiredAfter time.Duration
	noUnlocker   bool
}

func newCheck(a *app) *cobra.Command {
	o := &checkOptions{app: a}
	cmd := &cobra.Command{
		Use:   "check [PATTERN...]",
		Short: "Check the locks, as a plugin for Nagios and Icinga",
		Long: `Look at the locks once and say in one line how they are, with performance data.

  0 OK        all locks are held in time
  1 WARNING   a lock is alerting or malformed
  2 CRITICAL  a lock is expired and still there after --expired-after, or no unlocker runs
  3 UNKNOWN   etcd can not be asked

These are not the statuses of the other commands. A PATTERN selects names: * is any text, also with slashes, ? is one character.`,
		Example: `  mutexctl check
  mutexctl check 'billing/*' --no-unlocker`,
		Args: wants(0, -1, "[PATTERN...]"),
	}
	cmd.Flags().DurationVar(&o.expiredAfter, "expired-after", 5*time.Minute, "how long a lock may be expired")
	cmd.Flags().BoolVar(&o.noUnlocker, "no-unlocker", false, "do not look whether an unlocker runs")
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		if o.globs, err = newGlobs(args); err != nil {
			return err
		}
		return o.run(cmd.Context())
	}
	return cmd
}

func (o *checkOptions) run(ctx context.Context) error {
	s, err := o.app.open(ctx)
	if status(err) == ExitUsage {
		return err
	}
	var all *snapshot
	if err == nil {
		defer s.close()
		all, err = s.snapshot(ctx)
	}
	if err != nil {
		fmt.Fprintf(o.app.Stdout, "LOCKS UNKNOWN: %s\n", bar(prose(err.Error())))
		return &statusError{status: pluginUnknown}
	}
	v := o.judge(all)
	if _, err := fmt.Fprintf(o.app.Stdout, "LOCKS %s | %s\n", v.sentence(), v.performance()); err != nil {
		return err
	}
	if v.status() == pluginOK {
		return nil
	}
	return &statusError{status: v.status()}
}

// named is how many locks check tells by name.
const named = 3

// health is what check found.
type health struct {
	counts    map[staleness.State]int
	waiters   int
	ill       map[staleness.State][]string // sentences about locks that need a person
	overdue   int                          // expired for too long
	unlockers int
	alone     bool // there should be an unlocker and is none
}

func (o *checkOptions) judge(all *snapshot) health {
	now := o.app.Now()
	h := health{counts: map[staleness.State]int{}, ill: map[staleness.State][]string{}, unlockers: len(all.unlockers), alone: len(all.unlockers) == 0 && !o.noUnlocker}
	for _, r := range all.locks {
		if !o.globs.match(r.Name) {
			continue
		}
		state := judge(r, now).State
		h.counts[state]++
		h.waiters += len(all.waiters[r.Name])
		if state == staleness.Expired && now.Sub(r.AutoUnlockAt) > o.expiredAfter {
			h.overdue++
		}
		if state != staleness.Held && len(h.ill[state]) < named {
			h.ill[state] = append(h.ill[state], describe(r, state, now))
		}
	}
	return h
}

func describe(r *metadata.Record, state staleness.State, now time.Time) string {
	text := visible(r.Name) + " " + string(state)
	switch state {
	case staleness.Alerting:
		text += " since " + age(r.AlertAt, now)
	case staleness.Expired:
		text += " since " + age(r.AutoUnlockAt, now)
	}
	return text + " (" + who(r) + ")"
}

func (h health) status() int {
	switch {
	case h.alone, h.overdue > 0:
		return pluginCritical
	case h.counts[staleness.Alerting] > 0, h.counts[staleness.Malformed] > 0:
		return pluginWarning
	}
	return pluginOK
}

func (h health) sentence() string {
	parts := []string{map[int]string{pluginOK: "OK", pluginWarning: "WARNING", pluginCritical: "CRITICAL"}[h.status()]}
	var facts []string
	if h.alone {
		facts = append(facts, "no unlocker runs: nothing is alerted or removed")
	}
	ill := slices.Concat(h.ill[staleness.Expired], h.ill[staleness.Malformed], h.ill[staleness.Alerting])
	if len(ill) == 0 {
		facts = append(facts, count(h.counts[staleness.Held], "lock")+" held in time")
	}
	ill = ill[:min(named, len(ill))]
	more := h.counts[staleness.Alerting] + h.counts[staleness.Expired] + h.counts[staleness.Malformed] - len(ill)
	if facts = append(facts, ill...); more > 0 {
		facts = append(facts, fmt.Sprintf("and %d more", more))
	}
	return bar(strings.Join(append(parts, strings.Join(facts, ", ")), ": "))
}

func (h health) performance() string {
	var data []string
	for _, state := range staleness.States() {
		data = append(data, fmt.Sprintf("%s=%d;;;0;", state, h.counts[state]))
	}
	return strings.Join(append(data, fmt.Sprintf("waiters=%d;;;0;", h.waiters), fmt.Sprintf("unlockers=%d;;;0;", h.unlockers)), " ")
}

// bar keeps text from beginning the performance data.
func bar(s string) string { return strings.ReplaceAll(s, "|", "/") }
