package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/clustermutex/unlocker/internal/flags"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/route"
)

func newRouteFinish(o *routeOptions) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "finish SEGMENT --all-clients-know",
		Short: "Finish a move: forget the old cluster",
		Long: `Finish the move of a segment: take the old cluster out of its route, and remove the claims, with which
the move holds each lock there. With --all-clients-know you say what no cluster can know: that no client is left
which uses an older table, or which uses the old cluster without one. If there is one, a lock may get two
holders.

It refuses while a lock of the segment is held or waited for in the old cluster (--wait waits for that),
and while fencing tokens would fall. Killed at any moment, it can be called again; it then removes the
claims that are left. The default route is changed by hand.`,
		Example: `  mutexctl route finish billing --all-clients-know --table routes.yaml
  mutexctl route finish billing --all-clients-know --wait 1h --table routes.yaml`,
		Args: wants(1, 1, "SEGMENT"),
	}
	o.of(cmd)
	cmd.Flags().BoolVar(&o.know, "all-clients-know", false,
		"required: no client is left with an older table, or in the old cluster without one")
	cmd.Flags().BoolVar(&o.dryRun, "dry-run", false, "print the changed table, and write nothing")
	cmd.Flags().Var(&o.wait, "wait", "how long to wait for holders and waiters in the old cluster, or forever")
	flags.CommandLineOnly(cmd.Flags(), "all-clients-know", "dry-run", "wait")
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return o.finish(cmd.Context(), args[0]) }
	return cmd
}

func (o *routeOptions) finish(ctx context.Context, segment string) error {
	if !o.know {
		return usagef("give --all-clients-know when no client has an older table: otherwise a lock may get two holders")
	}
	t, r, err := o.routeOf(segment)
	if err != nil {
		return err
	}
	sites := &routeSites{app: o.app}
	defer sites.close()
	if r.From != "" {
		if err := o.drained(ctx, sites, r); err != nil {
			return err
		}
		next := r
		next.From = ""
		changed, err := t.with(next)
		if err != nil {
			return err
		}
		if o.dryRun {
			_, err := o.app.Stdout.Write(changed.text)
			return err
		}
		if err := changed.write(); err != nil {
			return err
		}
	}
	removed, err := o.forget(ctx, sites, t, r)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(o.app.Stdout, "the route of %s leads to %s alone; %s removed\n",
		text.Visible(segment), r.Cluster,
		count(removed, "claim"))
	return err
}

// drained waits until nobody holds or waits for a lock of the segment in the old cluster.
func (o *routeOptions) drained(ctx context.Context, sites *routeSites, r route.Route) error {
	wait, cancel := o.wait.bound(ctx)
	defer cancel()
	for {
		old, home, err := sites.both(ctx, r)
		if err != nil {
			return err
		}
		busy := old.busy()
		switch {
		case busy == "":
			return growing(r, old, home)
		case wait.Err() != nil || o.wait.none():
			return heldf("nothing was done: %s has %s", r.From, busy)
		}
		sleep(wait, time.Second)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}

// forget removes the claims of finished moves in all clusters of the table, and returns how many there were.
func (o *routeOptions) forget(ctx context.Context, sites *routeSites, t *routeTable, r route.Route) (int, error) {
	var names []string
	for _, other := range t.all() {
		names = append(names, other.Cluster, other.From)
	}
	slices.Sort(names)
	removed := 0
	for _, name := range slices.Compact(names) {
		if name == "" {
			continue
		}
		upTo := r.Move
		if name == r.Cluster {
			upTo-- // of this move it has none
		}
		n, err := sites.forgetAt(ctx, name, r.Segment, upTo, o.dryRun)
		if removed += n; err != nil {
			return removed, err
		}
	}
	return removed, nil
}

func (r *routeSites) forgetAt(ctx context.Context, name, segment string, upTo int, dryRun bool) (removed int,
	err error) {
	s, err := r.at(ctx, name)
	if err != nil {
		return 0, err
	}
	state, err := s.segment(ctx, segment)
	if err != nil || dryRun || len(state.claims) == 0 {
		return 0, err
	}
	locks, err := s.locks(nil)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, locks.Close()) }()
	for _, claim := range state.claims {
		gone, err := route.Forget(ctx, locks, claim.Lock, upTo)
		if err != nil {
			return removed, s.explain(ctx, "remove the claim on "+text.Visible(claim.Lock), err)
		}
		if gone {
			removed++
		}
	}
	return removed, nil
}
