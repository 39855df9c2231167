package cli

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/clustermutex/unlocker/internal/cli/term"
	"github.com/clustermutex/unlocker/internal/lockjson"
	"github.com/clustermutex/unlocker/internal/locks"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/text"
)

// stateStuck is the state of a task in progress whose lock nobody holds.
const stateStuck = "stuck"

type tasksOptions struct {
	listing
	states []string
	set    string
}

func newTasks(a *app) *cobra.Command {
	o := &tasksOptions{listing: listing{app: a, about: locks.AboutNames}}
	cmd := &cobra.Command{
		Use:   "tasks [SET [QUERY...]]",
		Short: "Show tasks, and which of them are stuck",
		Long: `Without SET, count the tasks of every set by state; with SET, list its tasks.
A QUERY finds names: a word is a part of one, and * and ? make it a pattern.

A task is stuck when it is in progress but nobody holds its lock: its worker died, and the lock was
auto-unlocked or force-unlocked. The next worker takes it again. To see who is working on a task:
mutexctl show SET/TASK`,
		Example: `  mutexctl tasks
  mutexctl tasks invoices --state stuck,failed
  mutexctl tasks invoices '2026-08/*' -o json | jq -r 'select(.attempts > 3) | .task'`,
		Args: argCount(0, -1, "[SET [QUERY...]]"),
	}
	o.format = term.Output(cmd, term.TableFormat, term.JSONFormat)
	cmd.Flags().StringSliceVar(&o.states, "state", nil, "only tasks in these states, or stuck")
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		if len(args) > 0 {
			o.set, args = args[0], args[1:]
			if err := protocol.CheckTask(o.set, "x"); err != nil {
				return &statusError{ExitUsage, err}
			}
		}
		if err := o.parse(args); err != nil {
			return err
		}
		return o.app.withSession(cmd.Context(), o.run)
	}
	return cmd
}

const taskMembers = `  set, task, lock           the set, the task in it, and the lock of its worker
  state                     as set by the workers, or in_progress
  stuck                     whether a task in progress has no worker
  attempts                  the number of attempts without success
  by, note                  who changed the task last, and what they noted
  added_at, changed_at      RFC 3339, UTC`

type taskJSON struct {
	Set       string     `json:"set"`
	Task      string     `json:"task"`
	Lock      string     `json:"lock"`
	State     string     `json:"state"`
	Stuck     bool       `json:"stuck"`
	Attempts  int        `json:"attempts"`
	By        *string    `json:"by"`
	Note      *string    `json:"note"`
	AddedAt   *time.Time `json:"added_at"`
	ChangedAt *time.Time `json:"changed_at"`
}

// shownState returns stuck, or else the stored state.
func (t *taskJSON) shownState() string {
	if t.Stuck {
		return stateStuck
	}
	return t.State
}

func (o *tasksOptions) run(ctx context.Context, s *session) error {
	found, err := o.read(ctx, s)
	switch {
	case err != nil:
		return err
	case o.format.JSON():
		return writeLines(o.app.Stdout, found, func(t taskJSON) any { return t })
	case o.set == "":
		return o.sets(found)
	}
	return o.table(found)
}

// read reads tasks and locks at the same revision, so that a task that is finished in between does not look stuck.
func (o *tasksOptions) read(ctx context.Context, s *session) (found []taskJSON, err error) {
	all, err := s.snapshot(ctx)
	if err != nil {
		return nil, err
	}
	held := all.held()
	prefix := s.layout.AllTasks()
	if o.set != "" {
		prefix = s.layout.Tasks(o.set)
	}
	_, err = s.store.ListPrefix(ctx, prefix, all.view.Fresh().Revision, func(kv protocol.KV) {
		key := s.layout.Parse(kv.Key)
		if key.Kind != protocol.KindTask || !o.findsName(key.ID) {
			return
		}
		if t := newTaskJSON(key, kv.Value, held[key.Lock]); o.wanted(&t) {
			found = append(found, t)
		}
	})
	if err != nil {
		return nil, s.explain(ctx, "list the tasks", err)
	}
	return found, nil
}

func newTaskJSON(key protocol.Key, value []byte, running bool) taskJSON {
	t, err := protocol.Unmarshal[protocol.Task](value)
	if err != nil {
		t.State = "unreadable"
		t.Note = err.Error()
	}
	return taskJSON{
		Set: strings.TrimSuffix(key.Lock, "/"+key.ID), Task: key.ID, Lock: key.Lock,
		State: t.State, Stuck: t.State == protocol.StateInProgress && !running, Attempts: t.Attempts,
		By:      lockjson.OrNull(t.By),
		Note:    lockjson.OrNull(t.Note),
		AddedAt: lockjson.OrNull(t.AddedAt.Time), ChangedAt: lockjson.OrNull(t.ChangedAt.Time),
	}
}

func (o *tasksOptions) wanted(t *taskJSON) bool {
	return len(o.states) == 0 || slices.Contains(o.states, t.State) || t.Stuck && slices.Contains(o.states, stateStuck)
}

// sets prints how many tasks of each set are in each state.
func (o *tasksOptions) sets(found []taskJSON) error {
	type group struct{ set, state string }
	counts := map[group]int{}
	oldest := map[group]time.Time{}
	for i := range found {
		g := group{found[i].Set, found[i].shownState()}
		counts[g]++
		oldest[g] = protocol.Earlier(oldest[g], lockjson.OrZero(found[i].ChangedAt))
	}
	groups := slices.SortedFunc(maps.Keys(counts), func(a, b group) int {
		return cmp.Or(cmp.Compare(a.set, b.set), cmp.Compare(a.state, b.state))
	})
	t := term.Table{}
	now := o.app.Now()
	t.Row("STATE", "SET", "TASKS", "LONGEST FOR")
	for _, g := range groups {
		t.Row(shortText(g.state), text.Visible(g.set), strconv.Itoa(counts[g]), age(oldest[g], now))
	}
	return o.app.writeTable(&t, text.Count(len(found), "task"))
}

func (o *tasksOptions) table(found []taskJSON) error {
	t := term.Table{}
	now := o.app.Now()
	t.Row("STATE", "TASK", "FOR", "ATTEMPTS", "BY", "NOTE")
	for i := range found {
		f := &found[i]
		t.Row(shortText(f.shownState()), text.Visible(f.Task), age(lockjson.OrZero(f.ChangedAt), now),
			strconv.Itoa(f.Attempts),
			shortText(lockjson.OrZero(f.By)), shortText(lockjson.OrZero(f.Note)))
	}
	return o.app.writeTable(&t, text.Count(len(found), "task"))
}
