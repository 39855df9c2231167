package cli

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/clustermutex/unlocker/internal/diagnosis"
	"github.com/clustermutex/unlocker/internal/etcdlocks"
	"github.com/clustermutex/unlocker/internal/lockjson"
	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/locks"
	"github.com/clustermutex/unlocker/internal/lockview"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// follower writes the output of watch.
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
	ends []end // not reported yet
}

// end is a hold that has ended.
type end struct {
	row    func() *locks.Row // judges it
	ending *metadata.Ending
}

// addEnd queues a hold that has ended. The views call it from their own goroutines.
func (f *follower) addEnd(row func() *locks.Row, e *metadata.Ending) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ends = append(f.ends, end{row, e})
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
	for _, e := range ends {
		if err := f.reportEnd(e.row(), e.ending); err != nil {
			return held.Next, err
		}
	}
	for _, row := range held.Rows {
		if err := f.reportFound(row); err != nil {
			return held.Next, err
		}
	}
	for _, l := range f.others.Locks() {
		if err := f.reportFound(locks.NewLeasedRow(l, f.now())); err != nil {
			return held.Next, err
		}
	}
	return held.Next, nil
}

// reportFound reports a lock that the query finds.
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

// eventJSON is one line of watch in JSON.
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

// hold identifies one hold of a lock.
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
			sleep(ctx, batchDelay)
		}
	}
	return context.Cause(ctx)
}

type waitOptions struct {
	names names
	wait  waitTimeout
}

func newWait(a *app) *cobra.Command {
	o := &waitOptions{wait: waitTimeout{forever: true}}
	cmd := &cobra.Command{
		Use:   "wait NAME",
		Short: "Wait until nobody holds a lock",
		Long: `Wait until nobody holds a lock. The lock is not taken, so another process may take it right away.
Exits with 3 if it is still held after --wait.

A semaphore or read-write lock is free when nobody has a permit, reads or writes. To wait for one of
its holders, give the holder's name: pool#2. Waiters in the queue do not count. A lock is not free
during its lock delay.`,
		Example: `  mutexctl wait db/migrate --wait 10m && ./start.sh
  mutexctl wait transcoding   # until all permits are back`,
		ValidArgsFunction: a.completeNames,
	}
	o.names.flag(cmd)
	cmd.Flags().Var(&o.wait, "wait", "how long to wait: a duration, 0 to check once, or forever")
	cmd.Flags().BoolVarP(&a.quiet, "quiet", "q", false, "do not report that it is held")
	o.names.onLock(cmd, a, nil, func(ctx context.Context, s *session, name string) error {
		return a.notFree(o.untilFree(ctx, s, name), ExitHeld)
	})
	return cmd
}

func (o *waitOptions) untilFree(ctx context.Context, s *session, name string) error {
	l, err := s.read(ctx, name)
	state := s.takenText(&l)
	switch {
	case err != nil || state == "":
		return err
	case o.wait.triesOnce():
		return heldErrorf("gave up waiting: %s", state)
	}
	ctx, stop := o.wait.withTimeout(ctx)
	defer stop()
	return s.untilFree(ctx, name, false, state)
}
