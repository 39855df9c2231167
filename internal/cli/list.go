package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/clustermutex/unlocker/internal/cli/term"
	"github.com/clustermutex/unlocker/internal/etcdconn"
	"github.com/clustermutex/unlocker/internal/lockview"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

type listOptions struct {
	app    *app
	format *term.Format
	states []string
	owners []string
	globs  globs
}

func newList(a *app) *cobra.Command {
	o := &listOptions{app: a}
	cmd := &cobra.Command{
		Use:   "list [PATTERN...]",
		Short: "List held locks",
		Long: `List the held locks, by name.
A PATTERN selects names: * stands for any text, slashes included, ? for one character.

Each holder of a semaphore or read-write lock has a line of its own, such as pool#2; HELD AS shows
what it has. WAITING counts the waiters of the whole lock. ALERT is "if silent" for a holder that
keeps extending its lock, and "at unlock" where the alert comes only with the auto-unlock.

` + lockHelp() + `

With -o name, one name per line, in the form that --escaped reads.`,
		Example: `  mutexctl list
  mutexctl list 'billing/*' --state alerting,expired
  mutexctl list -o json | jq -r 'select(.locked_at_in_seconds < -3600) | .name'
  mutexctl list -o name | while IFS= read -r n; do mutexctl show --escaped "$n"; done`,
		Aliases: []string{"ls"},
	}
	o.format = term.Output(cmd, term.TableFormat, term.JSONFormat, term.NameFormat)
	cmd.Flags().StringSliceVar(&o.states, "state", nil,
		"only locks in these states: "+stateWords(", "))
	_ = cmd.RegisterFlagCompletionFunc("state",
		cobra.FixedCompletions(strings.Split(stateWords(" "), " "), cobra.ShellCompDirectiveNoFileComp))
	cmd.Flags().StringSliceVar(&o.owners, "owner", nil, "only locks of these owners")
	o.globs.fromArguments(cmd, o.run)
	return cmd
}

func (o *listOptions) run(ctx context.Context) error {
	for _, s := range o.states {
		if !slices.Contains(staleness.States(), staleness.State(s)) {
			return usagef("there is no state %s: want one of %s", text.Visible(s), stateWords(", "))
		}
	}
	all, err := o.app.readAll(ctx)
	if err != nil {
		return err
	}
	listed := slices.Clone(all.locks)
	if o.format.String() != term.NameFormat { // names are input for other commands
		listed = append(listed, all.misplaced...)
		byName(listed)
	}
	shown := slices.DeleteFunc(listed, func(r *metadata.Record) bool { return !o.wanted(r) })
	switch o.format.String() {
	case term.JSONFormat:
		return o.json(all, shown)
	case term.NameFormat:
		return o.names(shown)
	}
	return o.table(all, shown)
}

func (o *listOptions) wanted(r *metadata.Record) bool {
	state := string(judge(r, o.app.Now()).State)
	return o.globs.match(r.Name) &&
		(len(o.states) == 0 || slices.Contains(o.states, state)) &&
		(len(o.owners) == 0 || slices.Contains(o.owners, r.Owner))
}

func (o *listOptions) json(all *snapshot, shown []*metadata.Record) error {
	now := o.app.Now()
	for _, r := range shown {
		if err := writeJSON(o.app.Stdout, newLockJSON(r, all.fate.Policy, all.waiters[r.Queue()], now)); err != nil {
			return err
		}
	}
	return nil
}

func (o *listOptions) names(shown []*metadata.Record) error {
	for _, r := range shown {
		if _, err := fmt.Fprintln(o.app.Stdout, text.Visible(r.Name)); err != nil {
			return err
		}
	}
	return nil
}

func (o *listOptions) table(all *snapshot, shown []*metadata.Record) error {
	now := o.app.Now()
	all.sayVerdict(o.app, now)
	t := term.Table{Coloured: term.TakesColours(o.app.Stdout)}
	t.Row("STATE", "LOCK", "HELD AS", "ENDED", "CLOCK", ackColumn, "OWNER", "HOST:PID", "HELD", "ALERT", "AUTO-UNLOCK",
		"WAITING", "PURPOSE")
	abandoned := false
	for _, r := range shown {
		verdict := judge(r, now)
		state := verdict.State
		abandoned = abandoned || state == staleness.Abandoned
		t.Row(string(state), text.Visible(r.Name), orNone(shareText(metadata.ShareOf(r.Name, r.Attributes))),
			orNone(endedWords(r, now)), orNone(clockAhead(verdict)), orNone(acknowledged(r, now)), shortText(r.Owner),
			hostPID(&r.Holder), age(r.LockedAt, now), alert(r, now), relative(r.AutoUnlockAt, now),
			strconv.Itoa(len(all.waiters[r.Queue()])), shortText(r.Purpose))
		t.Paint(0, stateColour(state))
	}
	for _, column := range []string{"HELD AS", "ENDED", "CLOCK", ackColumn} {
		t.DropEmpty(column)
	}
	if err := t.WriteRows(o.app.Stdout); err != nil {
		return err
	}
	if abandoned {
		fmt.Fprintln(o.app.Stderr, ofAbandoned(&all.fate))
	}
	_, err := fmt.Fprintln(o.app.Stderr, all.summary(len(shown)))
	return err
}

// stateWords are all states, separated.
func stateWords(separator string) string {
	var words []string
	for _, s := range staleness.States() {
		words = append(words, string(s))
	}
	return strings.Join(words, separator)
}

// summary is the line below a table: it turns an empty list into a statement.
func (all *snapshot) summary(shown int) string {
	parts := []string{text.Count(len(all.locks), "lock") + " held"}
	if n := len(all.delays); n > 0 {
		parts = append(parts, text.Count(n, "lock delay")+" (see \"mutexctl delays\")")
	}
	if n := len(all.misplaced); n > 0 {
		parts = append(parts, text.Count(n, "record")+" at the keys of no lock")
	}
	line := ""
	switch total := len(all.locks) + len(all.misplaced); {
	case shown == 0 && total > 0:
		line = "no lock matches; "
	case shown != total:
		parts = append(parts, text.Count(total-shown, "lock")+" not shown")
	}
	if all.foreign > 0 {
		parts = append(parts, text.Count(all.foreign, "key")+" below the prefix that fit no layout")
	}
	return line + strings.Join(parts, ", ") + fmt.Sprintf(" (revision %d)", all.revision)
}

type watchOptions struct {
	app    *app
	format *term.Format
	globs  globs
}

func watchShape() string {
	return `JSON: one object per line.

  time      when the change was seen, RFC 3339, UTC
  event     ` + stateWords(", ") + `: the lock's new state, or its state when the watch began
            ended: the hold is over
  lock      a lock as in "mutexctl list"
  ending    with "ended": an ending as in "mutexctl history"; else null`
}

func newWatch(a *app) *cobra.Command {
	o := &watchOptions{app: a}
	cmd := &cobra.Command{
		Use:   "watch [PATTERN...]",
		Short: "Follow locks as they are taken, alert and end",
		Long: `Print a line whenever a lock is taken, changes state or ends, and why it ended, after one line for
each lock already held.
A PATTERN selects names: * stands for any text, slashes included, ? for one character.

Stop it with Ctrl-C. When etcd is unreachable, watch says so on stderr and resumes by itself.

` + watchShape(),
		Example: `  mutexctl watch
  mutexctl watch 'billing/*' -o json | jq -c 'select(.event == "alerting") | .lock.name'`,
	}
	o.format = term.Output(cmd, term.TableFormat, term.JSONFormat)
	o.globs.fromArguments(cmd, o.run)
	return cmd
}

func (o *watchOptions) run(ctx context.Context) error {
	s, err := o.app.open(ctx)
	if err != nil {
		return err
	}
	defer s.close()
	f := &follower{app: o.app, globs: o.globs, json: o.format.JSON(), wake: make(chan struct{}, 1),
		reported: map[hold]string{}}
	view, stop := s.view(ctx, f.ended)
	defer stop()
	f.waiters = view.Waiters
	f.decided = func() staleness.Policy { return fateIn(view).Policy }
	return f.follow(ctx, view)
}

// view follows all locks until stop. It calls ended for every hold that ends.
func (s *session) view(ctx context.Context,
	ended func(*metadata.Record, *metadata.Ending)) (view *lockview.View, stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	view = lockview.New(s.layout, lockview.Source{List: s.store.List, Watch: s.store.Watch, Ending: s.store.Ending},
		lockview.Options{
			Ended: ended, Explain: etcdconn.Explain,
		})
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = view.Run(ctx) // ends only with the context
	}()
	return view, func() {
		cancel()
		<-done
	}
}

// use is how much of a semaphore or read-write lock is taken.
type use struct {
	kind                    string
	holders, permits, limit int
}

func useOf(holders []*metadata.Record) use {
	u := use{holders: len(holders)}
	for _, r := range holders {
		share := metadata.ShareOf(r.Name, r.Attributes)
		u.kind = cmp.Or(u.kind, share.Kind)
		u.limit = max(u.limit, share.Limit)
		u.permits += r.Permits()
	}
	return u
}

// text is, for example, "semaphore, 5 of 8 permits taken by 3 holders, 3 free".
func (u use) text() string {
	switch {
	case u.kind == metadata.HoldsShared:
		return "read-write lock, " + text.Count(u.holders, "reader")
	case u.limit == 0:
		return text.Count(u.holders, "holder")
	}
	return fmt.Sprintf("semaphore, %d of %s taken by %s, %d free", u.permits, text.Count(u.limit, "permit"),
		text.Count(u.holders, "holder"), u.free(u.limit))
}

func (u use) free(limit int) int { return max(limit-u.permits, 0) }
