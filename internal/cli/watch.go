package cli

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/clustermutex/unlocker/internal/cli/term"
	"github.com/clustermutex/unlocker/internal/diagnosis"
	"github.com/clustermutex/unlocker/internal/etcdconn"
	"github.com/clustermutex/unlocker/internal/etcdlocks"
	"github.com/clustermutex/unlocker/internal/flags"
	"github.com/clustermutex/unlocker/internal/lockjson"
	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/locks"
	"github.com/clustermutex/unlocker/internal/lockview"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

type watchOptions struct{ listing }

const changeMembers = `  time      when the change was seen
  event     the lock's new state, or its state when the watch began; or ended: the hold is over
  lock      a lock as in "mutexctl list"
  ending    with "ended": an ending as in "mutexctl history"; else null`

func newWatch(a *app) *cobra.Command {
	o := &watchOptions{listing{app: a, about: locks.AboutLocks}}
	cmd := &cobra.Command{
		Use:   "watch [QUERY...]",
		Short: "Follow locks as they are taken, alert and end",
		Long: `Print a line for each lock already held, then one whenever a lock is taken, changes state or ends, and
why it ended. A QUERY selects locks while they match it, and the end of each hold printed before: see
"mutexctl help query".

Stop it with Ctrl-C. When etcd is unreachable, watch reports it on stderr and resumes by itself.`,
		Example: `  mutexctl watch
  mutexctl watch 'billing/*' -o json | jq -c 'select(.event == "alerting") | .lock.name'`,
	}
	o.format = term.Output(cmd, term.TableFormat, term.JSONFormat)
	flags.EtcdLocks(cmd.Flags(), &a.etcdLocks)
	o.fromArguments(cmd, func(ctx context.Context) error { return a.withSession(ctx, o.run) })
	return cmd
}

func (o *watchOptions) run(ctx context.Context, s *session) error {
	f := &follower{app: o.app, query: o.query, json: o.format.JSON(), reported: map[hold]string{}}
	onEnded := func(r *metadata.Record, e *metadata.Ending) {
		f.addEnd(func() error { return f.reportEnd(f.judge(r).Rows[0], e) })
	}
	f.view = lockview.New(s.layout, lockview.Source{List: s.store.ListKeys, Watch: s.store.Watch,
		Ending: s.store.ReadEnding}, lockview.Options{OnEnded: onEnded, Explain: etcdconn.Explain})
	f.others = etcdlocks.New(o.app.etcdLocks, s.layout, s.store, func(row *locks.Row, e *metadata.Ending) {
		f.addEnd(func() error { return f.reportEnd(row, e) })
	}, s.log)
	ctx, cancel := context.WithCancel(ctx)
	var following sync.WaitGroup
	following.Go(func() { _ = f.view.Run(ctx) }) // ends only with the context
	following.Go(func() { _ = f.others.Run(ctx) })
	defer following.Wait()
	defer cancel()
	return f.follow(ctx)
}

type follower struct {
	app      *app
	query    *locks.Query
	json     bool
	view     *lockview.View
	others   *etcdlocks.View
	subject  locks.Subject   // of the last row that the query was asked about
	reported map[hold]string // the last reported event of each hold
	stale    bool            // it has reported that it is not up to date

	mu   sync.Mutex
	ends []func() error // report them; not called yet
}

// addEnd queues the report of a hold that has ended. The views call it from their own goroutines.
func (f *follower) addEnd(report func() error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ends = append(f.ends, report)
}

func (f *follower) now() time.Time { return f.app.Now() }

// judge judges records now, as the unlockers do.
func (f *follower) judge(records ...*metadata.Record) *locks.Snapshot {
	unlockers := diagnosis.CombinePolicies(f.view.Unlockers())
	return f.view.Judge(records, withoutDefaults(unlockers), f.now())
}

func (f *follower) finds(row *locks.Row) bool {
	f.subject = row.Subject()
	return f.query.Matches(&f.subject, f.now())
}

// update reports what has changed, and returns when the next deadline changes the state of a lock. It reads the ended
// holds before the locks, so that it never reports an ended hold as held.
func (f *follower) update() (next time.Time, err error) {
	f.mu.Lock()
	ends := f.ends
	f.ends = nil
	f.mu.Unlock()
	held := f.judge(f.view.Locks()...)
	for _, report := range ends {
		if err := report(); err != nil {
			return held.Next, err
		}
	}
	for _, row := range slices.Concat(held.Rows, f.others.Rows()) {
		if err := f.reportFound(row); err != nil {
			return held.Next, err
		}
	}
	return held.Next, nil
}

func (f *follower) reportFound(row *locks.Row) error {
	switch _, known := f.reported[holdOf(row.Record)]; {
	case f.finds(row):
		return f.report(row)
	case known:
		f.reported[holdOf(row.Record)] = "" // its end is still reported
	}
	return nil
}

// report writes the state, unless it is the last reported one of this hold.
func (f *follower) report(row *locks.Row) error {
	event := string(row.State)
	if f.reported[holdOf(row.Record)] == event {
		return nil
	}
	f.reported[holdOf(row.Record)] = event
	return f.write(row, event, nil)
}

// reportEnd writes how a hold ended. If the hold began and ended between two updates, it first writes that the lock was
// held.
func (f *follower) reportEnd(row *locks.Row, ending *metadata.Ending) error {
	if _, known := f.reported[holdOf(row.Record)]; !known {
		if !f.finds(row) {
			return nil
		}
		if err := f.report(row); err != nil {
			return err
		}
	}
	delete(f.reported, holdOf(row.Record))
	if ending == nil {
		ending = new(lockrecord.ReleaseEnding(row.Record, time.Time{}))
	}
	return f.write(row, "ended", ending)
}

type eventJSON struct {
	Time   string           `json:"time"`
	Event  string           `json:"event"`
	Lock   lockjson.Lock    `json:"lock"`
	Ending *lockjson.Ending `json:"ending"`
}

func (f *follower) write(row *locks.Row, event string, ending *metadata.Ending) error {
	now := f.now()
	r := row.Record
	if f.json {
		j := eventJSON{Time: lockjson.Time(now), Event: event,
			Lock: lockjson.New(row, now)}
		if ending != nil {
			j.Ending = new(lockjson.NewEnding(ending, now))
		}
		return writeJSON(f.app.Stdout, j)
	}
	line := fmt.Sprintf("%s  %-9s  %s  ", now.UTC().Format("2006-01-02 15:04:05Z"), event, text.Visible(r.Name))
	switch {
	case ending != nil:
		line += endingSentence(ending)
		if !r.LockedAt.IsZero() {
			line += " after " + age(r.LockedAt, now)
		}
		line += ", was held by " + holderText(r)
	default:
		line += "held by " + holderText(r)
		if r.Purpose != "" {
			line += " for " + shortText(r.Purpose)
		}
		if r.ProvenDead() {
			line += "; " + protocol.DescribeStatement(r.Death, now)
		}
	}
	_, err := fmt.Fprintln(f.app.Stdout, line)
	return err
}

// maxLag is how long the output may lag behind before a warning. A lost watch usually recovers at once.
const maxLag = 2 * time.Second

// reportFreshness reports on stderr when the output is no longer up to date, and when it is again.
func (f *follower) reportFreshness(fresh protocol.Freshness) {
	switch {
	case !fresh.Synced && !f.stale && f.now().Sub(fresh.SyncedChangedAt) > maxLag:
		f.app.note("not up to date: %s", fresh.Cause)
		f.stale = true
	case fresh.Synced && f.stale:
		f.app.note("up to date again")
		f.stale = false
	}
}

type hold struct {
	lock  string
	token int64
}

func holdOf(r *metadata.Record) hold { return hold{r.Name, r.Token} }

// follow reports changes until the context ends, and returns its cause.
func (f *follower) follow(ctx context.Context) error {
	for ctx.Err() == nil {
		changed := f.view.Changed()
		fresh := f.view.Fresh()
		f.reportFreshness(fresh)
		next := time.Time{}
		if fresh.Synced {
			var err error
			if next, err = f.update(); err != nil {
				return err
			}
		}
		pause := time.Second // freshness and ends are checked at least this often
		if !next.IsZero() {
			pause = min(pause, max(next.Sub(f.now()), 0)+time.Millisecond)
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		case <-changed:
			sleep(ctx, updateDelay)
		}
	}
	return context.Cause(ctx)
}
