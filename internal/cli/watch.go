package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/clustermutex/unlocker/internal/cli/term"
	"github.com/clustermutex/unlocker/internal/etcdconn"
	"github.com/clustermutex/unlocker/internal/lockview"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

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
