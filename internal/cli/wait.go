package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"
)

type waitOptions struct {
	app   *app
	names names
	wait  patience
}

func newWait(a *app) *cobra.Command {
	o := &waitOptions{app: a, wait: patience{forever: true}}
	cmd := &cobra.Command{
		Use:   "wait NAME",
		Short: "Wait until nobody holds a lock",
		Long: `Wait until nobody holds a lock, without taking it: another may take it at the next moment. Ends with 3 when it is still held
after --wait.`,
		Example: `  mutexctl wait db/migrate --wait 10m && ./start.sh`,
		Args:    wants(1, 1, "NAME"), ValidArgsFunction: a.completeNames,
	}
	o.names.flag(cmd)
	cmd.Flags().Var(&o.wait, "wait", "how long to wait: a time, 0 to look once, or forever")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		name, err := o.names.any(args[0])
		if err != nil {
			return err
		}
		return o.run(cmd.Context(), name)
	}
	return cmd
}

func (o *waitOptions) run(ctx context.Context, name string) error {
	s, err := o.app.open(ctx)
	if err != nil {
		return err
	}
	defer s.close()
	doc, err := s.get(ctx, name)
	switch {
	case status(err) == ExitNoLock:
		return nil
	case err != nil:
		return err
	case doc.Token == 0:
		return nil
	}
	var timeout <-chan time.Time
	if !o.wait.forever {
		timeout = time.After(o.wait.limit)
	}
	if o.wait.forever || o.wait.limit > 0 {
		o.app.note("%s is held by %s", visible(name), s.holder(&doc.Record))
	}
	view, stop := s.view(ctx, nil)
	defer stop()
	for {
		changed := view.Changed()
		now := view.Lock(name)
		if view.Fresh().Synced && (now == nil || now.Token == 0) {
			return nil
		}
		if now != nil {
			doc.Record = *now
		}
		select {
		case <-changed:
		case <-timeout:
			return heldf("gave up waiting: %s is held by %s", visible(name), s.holder(&doc.Record))
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
