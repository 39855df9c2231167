package cli

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/clustermutex/unlocker/internal/cli/term"
	"github.com/clustermutex/unlocker/internal/diagnosis"
	"github.com/clustermutex/unlocker/internal/flags"
	"github.com/clustermutex/unlocker/internal/headline"
	"github.com/clustermutex/unlocker/internal/lockjson"
	"github.com/clustermutex/unlocker/internal/locks"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

type listOptions struct {
	listing
	due     bool
	delays  bool
	sort    string
	limit   int
	isGiven func(flag string) bool
}

func newList(a *app) *cobra.Command {
	o := &listOptions{listing: listing{app: a, about: locks.AboutLocks}}
	cmd := &cobra.Command{
		Use:        "list [QUERY...]",
		SuggestFor: []string{"status", "locks", "ps"},
		Short:      "List held locks, the most urgent first",
		Long: `List the held locks, the most urgent first, as on the dashboard: those that need a person, then those
that unlockers remove by themselves, then those on time. The sentence on top is about the first line.
A QUERY selects some of them, as the dashboard's search does: see "mutexctl help query".

Each holder of a semaphore or read-write lock has a line of its own, such as pool#2. WAITING counts the
waiters of the whole lock. ALERT is "if silent" for a holder that keeps extending its lock, and "at
unlock" where the alert comes only with the auto-unlock. AUTO-UNLOCK is "never" while no unlocker removes
the lock.

With --due, list only locks past their deadline, which an unlocker with a fresh view and a verified
clock would remove now, by the policy that the running unlockers publish; and say what pauses auto-unlock.

With --delays, list the lock delays instead: locks that clients do not take yet, because a hold was ended
by force or at its deadline, and the former holder may still be working. A delay ends by itself, or by
"mutexctl force-unlock --end-delay".

On a terminal, what does not fit is cut, and a note says so; -o wide shows all. In a pipe or a file
nothing is cut. With -o name, one name per line, in the form that --escaped reads.`,
		Example: `  mutexctl list 'billing/*' state:alerting,expired
  mutexctl list 'host:node-7 held:>10m'
  mutexctl list --sort held --limit 10   # the ten oldest holds
  mutexctl list --delays 'billing/*'`,
		Aliases: []string{"ls"},
	}
	o.format = term.Output(cmd, term.TableFormat, term.WideFormat, term.JSONFormat, term.NameFormat)
	cmd.Flags().StringVar(&o.sort, "sort", locks.MostUrgent,
		"order: "+strings.Join(locks.Orders(), ", ")+"; a leading - reverses it")
	_ = cmd.RegisterFlagCompletionFunc("sort",
		cobra.FixedCompletions(locks.Orders(), cobra.ShellCompDirectiveNoFileComp))
	cmd.Flags().IntVar(&o.limit, "limit", 0, "how many locks to show at most; 0 is all")
	flags.NotNegative(cmd.Flags(), "limit")
	cmd.Flags().BoolVar(&o.due, "due", false, "only locks that unlockers may remove now")
	flags.EtcdLocks(cmd.Flags(), &a.etcdLocks)
	cmd.Flags().BoolVar(&o.delays, "delays", false, "list lock delays: locks that may not be taken yet")
	o.isGiven = cmd.Flags().Changed
	o.fromArguments(cmd, func(ctx context.Context) error { return a.withSession(ctx, o.run) })
	cmd.PreRunE = func(*cobra.Command, []string) error { return o.check() }
	return cmd
}

func (o *listOptions) check() error {
	if o.delays {
		o.about = locks.AboutDelays
	}
	for _, name := range []string{"due", "sort", "limit"} {
		if o.delays && o.isGiven(name) {
			return usageErrorf("--%s is about locks: it does not go with --delays", name)
		}
	}
	if locks.ParseOrder(o.sort).String() != o.sort {
		return usageErrorf("there is no order %s: want one of %s, each also with a - before it", text.Visible(o.sort),
			strings.Join(locks.Orders(), ", "))
	}
	return nil
}

func (o *listOptions) run(ctx context.Context, s *session) error {
	all, err := s.snapshot(ctx)
	if err != nil {
		return err
	}
	if o.delays {
		return o.listDelays(all, o.app.Now())
	}
	return o.listLocks(ctx, all, o.app.Now())
}

func (o *listOptions) listLocks(ctx context.Context, all *snapshot, now time.Time) error {
	by := all.combined
	if o.due {
		by.Policy = o.policy(&by)
	}
	model := all.model(by, now)
	found, err := model.Search(ctx, o.query, locks.ParseOrder(o.sort), now)
	if err != nil {
		return err
	}
	rows := slices.DeleteFunc(slices.Clone(found.Rows), func(r *locks.Row) bool { return o.leavesOut(r, &by, now) })
	shown := rows
	if o.limit > 0 {
		shown = shown[:min(o.limit, len(shown))]
	}
	if err := o.write(all, found, shown, now); err != nil {
		return err
	}
	switch {
	case o.due:
		return o.app.writeNotes(all.dueNotes(len(rows), by.Policy)...)
	case o.format.String() == term.JSONFormat, o.format.String() == term.NameFormat:
		return nil
	}
	return o.app.writeNotes(o.summary(all, model, &found.Counts, len(shown)), o.unknownKey(len(rows)))
}

// leavesOut reports whether the lock is not what the flags ask for, by the policy of the unlockers.
func (o *listOptions) leavesOut(r *locks.Row, by *diagnosis.CombinedPolicy, now time.Time) bool {
	switch {
	case o.due:
		return r.Misplaced || r.Leased != nil || by.Excludes(r.Name) || !isDue(r.Record, by.Policy, now)
	case o.format.String() == term.NameFormat: // names are input for other commands
		return r.Misplaced || r.Leased != nil
	}
	return false
}

func (o *listOptions) write(all *snapshot, found *locks.Result, shown []*locks.Row, now time.Time) error {
	switch o.format.String() {
	case term.JSONFormat:
		return writeLines(o.app.Stdout, shown, func(l *locks.Row) any { return lockjson.New(l, now) })
	case term.NameFormat:
		return writeNames(o.app.Stdout, shown, func(l *locks.Row) string { return l.Name })
	}
	return o.table(all, found, shown, now)
}

const ackColumn = "ACKNOWLEDGED BY"

func (o *listOptions) table(all *snapshot, found *locks.Result, shown []*locks.Row, now time.Time) error {
	all.printHeadline(o.app, now)
	t := term.Table{Coloured: term.TakesColours(o.app.Stdout)}
	t.Row("STATE", "LOCK", "HELD AS", "ENDED", "CLOCK", ackColumn, "OWNER", "HOST:PID", "HELD", "ALERT", "AUTO-UNLOCK",
		"WAITING", "PURPOSE")
	c := headline.Input{Now: now, Combined: all.combined}
	for _, l := range shown {
		r := l.Record
		alert, unlock := deadlineTexts(l, &c)
		state := l.StateIn(found.Class(l))
		t.Row(string(state), text.Visible(r.Name),
			orNone(protocol.DescribeShare(l.Share())), orNone(endedText(r, now)), orNone(clockAhead(l.Judgement)),
			orNone(acknowledgedText(r, now)), fullText(r.Owner), locks.HostPID(fullText(r.Hostname), r.PID),
			age(r.LockedAt, now), alert, unlock, strconv.Itoa(l.Waiters), fullText(r.Purpose))
		t.Paint(0, stateColour(state))
	}
	t.DropEmpty("HELD AS", "ENDED", "CLOCK", ackColumn)
	return o.app.writeTable(&t, t.Fit(o.app.width(o.format), "PURPOSE", "HELD AS", "CLOCK", ackColumn, "HELD", "ENDED",
		"ALERT", "WAITING", "HOST:PID", "OWNER"))
}

// deadlineTexts returns when the lock alerts, and when it is auto-unlocked.
func deadlineTexts(l *locks.Row, c *headline.Input) (alert, unlock string) {
	if l.DueUnlock().After(c.Now) && c.WhyNeverRemoved(&locks.HeldLock{Row: l, Lock: l.Name}) != "" {
		return relative(l.DueAlert, c.Now), "never"
	}
	return alertText(l.Record, l.Judgement, c.Now), relative(l.DueUnlock(), c.Now)
}

// summary returns the line below the table: how many of the selected locks are in which state, and what is not shown.
// It says so if no lock was selected.
func (o *listOptions) summary(all *snapshot, model *locks.Snapshot, found *locks.Counts, shown int) string {
	line := countStates(found)
	if found.Total == 0 && model.Totals.Total > 0 {
		line = "no lock matches"
	}
	parts := []string{line}
	if hidden := model.Totals.Total - shown; hidden > 0 {
		parts = append(parts, text.Count(hidden, "lock")+" not shown")
	}
	if n := len(all.view.Delays()); n > 0 {
		parts = append(parts, text.Count(n, "lock delay")+" (see \"mutexctl list --delays\")")
	}
	if n := len(model.Rows) - len(all.view.Locks()); n > 0 {
		parts = append(parts, text.Count(n, "record")+" at keys that belong to no lock")
	}
	_, foreign, theirs := all.view.Foreign()
	if theirs > 0 && len(model.Leased) == 0 {
		parts = append(parts, otherKeysNote(theirs, o.app.locks.Prefix()))
	}
	if foreign > theirs {
		parts = append(parts, text.Count(foreign-theirs, "key")+" below the prefix that the protocol does not know")
	}
	return strings.Join(parts, "; ") + fmt.Sprintf(" (revision %d)", all.view.Fresh().Revision)
}

// countStates returns a text such as "4 locks held; 2 waiting" or "4 locks: 1 expired, 3 held; 2 waiting".
func countStates(c *locks.Counts) string {
	var each []string
	states := metadata.States()
	slices.SortFunc(states, func(a, b metadata.StateWords) int { return a.State.Compare(b.State) })
	for _, s := range states {
		n := c.In(s.State)
		if s.State == metadata.StateHeld {
			n -= c.In(metadata.StateExpiring)
		}
		if n > 0 {
			each = append(each, fmt.Sprintf("%d %s", n, s.State))
		}
	}
	if c.Leased > 0 {
		each = append(each, fmt.Sprintf("%d %s", c.Leased, locks.LeasedState))
	}
	line := text.Count(c.Total, "lock")
	switch len(each) {
	case 0:
		line += " held"
	case 1:
		_, state, _ := strings.Cut(each[0], " ")
		line += " " + state
	default:
		line += ": " + strings.Join(each, ", ")
	}
	if c.Waiting > 0 {
		line += "; " + waitingText(c.Waiting)
	}
	return line
}

// printHeadline prints the headline and the command to run next, to stderr so that the table on stdout can be piped.
// Unclaimed locks are missing: a single snapshot does not show for how long a lock has been free.
func (all *snapshot) printHeadline(a *app, now time.Time) {
	c := headline.InputOf(all.model(all.combined, now), all.unlockers, now)
	c.Alarm = strings.Join(all.alarms, "; ")
	v := headline.For(c)
	fmt.Fprintln(a.Stderr, v.String(now))
	if command := v.Command(); command != "" {
		fmt.Fprintln(a.Stderr, "next: "+command)
	}
}
