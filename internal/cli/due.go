package cli

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/spf13/cobra"

	"github.com/clustermutex/unlocker/internal/cli/term"
	"github.com/clustermutex/unlocker/internal/diagnosis/fate"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

type dueOptions struct{ listing }

func newDue(a *app) *cobra.Command {
	o := &dueOptions{listing{app: a}}
	cmd := &cobra.Command{
		Use:   "due [PATTERN...]",
		Short: "Show which locks unlockers may remove now",
		Long: `Show which locks are past their deadline, so that an unlocker with a fresh view and a verified clock
would remove them now, by the policy that the running unlockers publish. due removes nothing: only an
unlocker that has watched the lock for a while, or an operator with force-unlock, can do that. It also
reports when no unlocker has announced itself, or all of them are holding back.
A PATTERN selects names: * stands for any text, slashes included, ? for one character.

JSON: one object per line, a lock as in "mutexctl list".`,
		Example: `  mutexctl due
  mutexctl due 'billing/*' -o json`,
	}
	o.format = term.Output(cmd, term.TableFormat, term.JSONFormat)
	o.globs.fromArguments(cmd, o.run)
	return cmd
}

func (o *dueOptions) run(ctx context.Context) error {
	all, err := o.app.readAll(ctx)
	if err != nil {
		return err
	}
	now := o.app.Now()
	policy := o.policy(&all.fate)
	var t term.Table
	due := 0
	t.Row("LOCK", "OWNER", "HOST:PID", "AUTO-UNLOCK")
	for _, r := range all.locks {
		if !o.globs.match(r.Name) || all.fate.Excludes(r.Name) || !isDue(r, policy, now) {
			continue
		}
		due++
		if o.format.JSON() {
			if err := writeJSON(o.app.Stdout, newLockJSON(r, policy, all.waiters[r.Queue()], now)); err != nil {
				return err
			}
			continue
		}
		t.Row(text.Visible(r.Name), shortText(r.Owner), hostPID(&r.Holder), relative(r.AutoUnlockAt, now))
	}
	abandoned := ""
	if policy.UnlockAbandoned {
		abandoned = ", or abandoned"
	}
	why := ""
	if due > 0 {
		why = holdBack(all.unlockers)
	}
	return o.app.writeTable(&t, fmt.Sprintf("%d of %s due (more than %v past the deadline%s)", due,
		text.Count(len(all.locks), "lock"), policy.ClockSkew, abandoned), why)
}

// policy is by what the unlockers decide, or the default as far as that is not known, which it then says.
func (o *dueOptions) policy(f *fate.Fate) staleness.Policy {
	switch {
	case f.Known():
		return f.Policy
	case f.Unlockers > 0:
		fmt.Fprintf(o.app.Stderr, "how the unlockers decide %s; this is the default\n", unknownFate(f))
	}
	if f.Policy.MinWarning > 0 { // of those that say
		return f.Policy
	}
	return staleness.DefaultPolicy()
}

// isDue reports whether an ideal unlocker would remove the lock: one that has always watched it, and that nothing holds
// back.
func isDue(r *metadata.Record, p staleness.Policy, now time.Time) bool {
	p.DefaultAutoUnlockAfter = 0 // counted from when an unlocker saw the lock, which is not known here
	ideal := staleness.Conditions{LastGap: math.MinInt64, Writable: true, Fresh: true, WallClock: staleness.Verified,
		Forward: true}
	watched := *stated(r, now)
	watched.Seen = metadata.Seen{First: math.MinInt64, Changed: math.MinInt64}
	return staleness.Decide(&watched, p, ideal, staleness.Moment{Wall: now}).HeldBack == ""
}
