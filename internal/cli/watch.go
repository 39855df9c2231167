package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/clustermutex/unlocker/internal/cli/term"
	"github.com/clustermutex/unlocker/internal/lockview"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

type watchOptions struct {
	app    *app
	format *term.Format
	globs  globs
}

const watchShape = `JSON: one object per line.

  time      when the change was seen, RFC 3339, UTC
  event     held, alerting, abandoned, expired, malformed: the lock's state from now on, or when the watch began
            ended: the hold is over
  lock      a lock as in "mutexctl list"
  ending    with "ended": an ending as in "mutexctl history"; else null`

func newWatch(a *app) *cobra.Command {
	o := &watchOptions{app: a}
	cmd := &cobra.Command{
		Use:   "watch [PATTERN...]",
		Short: "Follow locks as they are taken, alert and end",
		Long: `Print a line whenever a lock is taken, changes state or ends, and why it ended, after one line for
each lock already held.
A PATTERN selects names: * stands for any text, slashes included, ? for one character.

Stop it with Ctrl-C. When etcd is unreachable, watch says so on stderr and resumes by itself.

` + watchShape,
		Example: `  mutexctl watch
  mutexctl watch 'billing/*' -o json | jq -c 'select(.event == "alerting") | .lock.name'`,
		Args: wants(0, -1, "[PATTERN...]"),
	}
	o.format = term.Output(cmd, term.TableFormat, term.JSONFormat)
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		if o.globs, err = newGlobs(args); err != nil {
			return err
		}
		return o.run(cmd.Context())
	}
	return cmd
}

func (o *watchOptions) run(ctx context.Context) error {
	s, err := o.app.open(ctx)
	if err != nil {
		return err
	}
	defer s.close()
	f := &follower{options: o, wake: make(chan struct{}, 1), reported: map[hold]string{}}
	view, stop := s.view(ctx, f.ended)
	defer stop()
	f.waiters = view.Waiters
	return f.follow(ctx, view)
}

// gather is how long changes are collected before they are processed: an update costs time for every lock.
const gather = 100 * time.Millisecond

// follow reports what changes until the context ends, and returns why it ended.
func (f *follower) follow(ctx context.Context, view *lockview.View) error {
	for ctx.Err() == nil {
		changed := view.Changed()
		fresh := view.Fresh()
		f.reportFreshness(fresh)
		next := time.Time{}
		if fresh.Synced {
			var err error
			if next, err = f.update(view.Locks); err != nil {
				return err
			}
		}
		pause := time.Second // freshness is checked at least this often
		if !next.IsZero() {
			pause = min(pause, max(next.Sub(f.now()), 0)+time.Millisecond)
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		case <-f.wake:
		case <-changed:
			sleep(ctx, gather)
		}
	}
	return context.Cause(ctx)
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// hold identifies one hold of a lock.
type hold struct {
	lock  string
	token int64
}

func holdOf(r *metadata.Record) hold { return hold{r.Name, r.Token} }
