package cli

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/clustermutex/unlocker/internal/cli/term"
	"github.com/clustermutex/unlocker/internal/flags"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/route"
)

type routeOptions struct {
	app    *app
	table  string
	to     string
	dryRun bool
	fall   bool
	know   bool
	wait   waitTimeout
}

func newRoute(a *app) *cobra.Command {
	o := &routeOptions{app: a}
	cmd := &cobra.Command{
		Use:   "route",
		Short: "Show which cluster has which locks, and move a segment of them",
		Long: `A table of routes says which cluster has the locks of a segment, which is a name up to its first slash:
"billing" for billing/2026-08. Clients of package route read the same file. The clusters are those in the
file of --clusters.

default: {cluster: eu-1}
routes:
  - {segment: billing, cluster: eu-2, from: eu-1, move: 1}

A move changes the table, and nothing else: clients that read it take care that no lock has two holders.
When all of them have, finish it.`,
		Example: `  mutexctl route list --table routes.yaml
  mutexctl route move billing --to eu-2 --table routes.yaml
  mutexctl route finish billing --all-clients-know --table routes.yaml`,
		Args: noCommand,
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	cmd.AddCommand(newRouteList(o), newRouteCheck(o), newRouteMove(o), newRouteFinish(o))
	return cmd
}

// of defines the flag that says which table a command is about.
func (o *routeOptions) of(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.table, "table", "", "YAML or JSON `file` with the table of routes (required)")
}

func newRouteList(o *routeOptions) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List the routes of a table",
		Long:    `List the routes of a table, without contacting etcd.`,
		Example: `  mutexctl route list --table routes.yaml`,
		Args:    wants(0, 0, ""),
	}
	o.of(cmd)
	cmd.RunE = func(_ *cobra.Command, _ []string) error {
		t, err := readRoutes(o.table)
		if err != nil {
			return err
		}
		var rows term.Table
		rows.Row("SEGMENT", "CLUSTER", "FROM", "MOVE")
		for _, r := range t.all() {
			rows.Row(segmentName(r), text.Visible(r.Cluster), orNone(text.Visible(r.From)), strconv.Itoa(r.Move))
		}
		return rows.Write(o.app.Stdout)
	}
	return cmd
}

// all are the routes, the default first.
func (t *routeTable) all() []route.Route {
	routes := slices.Clone(t.table.Routes)
	if t.table.Default != nil {
		routes = slices.Insert(routes, 0, *t.table.Default)
	}
	return routes
}

func segmentName(r route.Route) string {
	if r.Segment == "" {
		return "(default)"
	}
	return text.Visible(r.Segment)
}

func newRouteCheck(o *routeOptions) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Check a table of routes, and show how far moves are",
		Long: `Check that the clusters of a table answer, and show for each segment that moves how many locks are held
and waited for in the old cluster, how many the move holds there (claims), and whether fencing tokens
would fall: then clients take no lock in the new cluster, until its revision is past that of the old one.
The default route is for segments that are in no list: of a move of it, only the clusters are checked.`,
		Example: `  mutexctl route check --table routes.yaml`,
		Args:    wants(0, 0, ""),
	}
	o.of(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return o.check(cmd.Context()) }
	return cmd
}

func (o *routeOptions) check(ctx context.Context) error {
	t, err := readRoutes(o.table)
	if err != nil {
		return err
	}
	sites := &routeSites{app: o.app}
	defer sites.close()
	var rows term.Table
	rows.Row("SEGMENT", "FROM", "TO", "HELD", "WAITING", "CLAIMS", "TOKENS")
	for _, r := range t.all() {
		home, err := sites.at(ctx, r.Cluster)
		if err != nil {
			return err
		}
		if r.From == "" {
			continue
		}
		from, err := sites.at(ctx, r.From)
		if err != nil {
			return err
		}
		if r.Segment == "" {
			continue
		}
		old, err := from.segment(ctx, r.Segment)
		if err != nil {
			return err
		}
		present, err := home.segment(ctx, r.Segment)
		if err != nil {
			return err
		}
		rows.Row(segmentName(r), r.From, r.Cluster, strconv.Itoa(len(old.held)), strconv.Itoa(old.waiters),
			strconv.Itoa(len(old.claims)), tokens(r, old, present))
	}
	if err := rows.WriteRows(o.app.Stdout); err != nil {
		return err
	}
	_, err = fmt.Fprintf(o.app.Stderr, "%s, all of their clusters answer\n", count(len(t.all()), "route"))
	return err
}

// tokens is a word about the fencing tokens of a move.
func tokens(r route.Route, old, home *segmentState) string {
	switch {
	case home.revision >= old.revision:
		return "grow"
	case r.TokensMayFall:
		return "may fall"
	}
	return "would fall"
}

func newRouteMove(o *routeOptions) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "move SEGMENT --to CLUSTER",
		Short: "Move the locks of a segment to another cluster",
		Long: `Move the locks of a segment to another cluster, by a change of the table. From then on, a client that
reads it takes a lock in the new cluster once the move holds that lock in the old one: at once if it is
free there, and after its holder otherwise. Give the table to all clients, then finish the move.

It refuses while another move of the segment is unfinished (back to where it came from is possible), if
there are periods of jobs or tasks, which a move does not carry, and if fencing tokens would fall: the
new cluster's revision has to be past the old one's. Comments in the file stay. Killed at any moment, it
has changed the table or has not.`,
		Example: `  mutexctl route move billing --to eu-2 --table routes.yaml
  mutexctl route move billing --to eu-2 --table routes.yaml --dry-run`,
		Args: wants(1, 1, "SEGMENT"),
	}
	o.of(cmd)
	cmd.Flags().StringVar(&o.to, "to", "", "`name` of the new cluster (required)")
	cmd.Flags().BoolVar(&o.dryRun, "dry-run", false, "print the changed table, and write nothing")
	cmd.Flags().BoolVar(&o.fall, "tokens-may-fall", false,
		"nothing checks the fencing tokens of the segment: they may begin again lower")
	flags.CommandLineOnly(cmd.Flags(), "to", "dry-run", "tokens-may-fall")
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return o.move(cmd.Context(), args[0]) }
	return cmd
}

// routeOf is the route of a segment in the table.
func (t *routeTable) routeOf(segment string) (route.Route, error) {
	if route.Segment(segment) != segment || segment == "" {
		return route.Route{}, usagef("%s is no segment: a segment ends before the first slash", text.Visible(segment))
	}
	r, err := t.table.Of(segment)
	if err != nil {
		return r, usagef("%s has no route for the segment %s, and no default", t.file, text.Visible(segment))
	}
	return r, nil
}

// routeOf reads the table, and the route of the segment in it.
func (o *routeOptions) routeOf(segment string) (*routeTable, route.Route, error) {
	t, err := readRoutes(o.table)
	if err != nil {
		return nil, route.Route{}, err
	}
	r, err := t.routeOf(segment)
	return t, r, err
}

func (o *routeOptions) move(ctx context.Context, segment string) error {
	if o.to == "" {
		return usagef("the new cluster is missing: give --to CLUSTER")
	}
	t, r, err := o.routeOf(segment)
	if err != nil {
		return err
	}
	switch {
	case o.to == r.Cluster:
		_, err := fmt.Fprintf(o.app.Stdout, "nothing to do: the route of %s leads to %s\n", text.Visible(segment), o.to)
		return err
	case r.From != "" && o.to != r.From:
		return fmt.Errorf("nothing was done: the move of %s from %s to %s is not finished; finish it, or move back",
			text.Visible(segment), r.From, r.Cluster)
	}
	next := route.Route{Segment: segment, Cluster: o.to, From: r.Cluster, Move: r.Move + 1,
		TokensMayFall: o.fall || r.TokensMayFall}
	changed, err := t.with(next)
	if err != nil {
		return err
	}
	sites := &routeSites{app: o.app}
	defer sites.close()
	held, err := sites.mayMove(ctx, next)
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
	_, err = fmt.Fprintf(o.app.Stdout, "move %d of %s, from %s to %s, is in the table; %s held in %s until released\n",
		next.Move, text.Visible(segment), next.From, next.Cluster, count(held, "lock"), next.From)
	return err
}

// mayMove refuses moves that clients could not follow, and returns how many locks are held in the old cluster.
func (r *routeSites) mayMove(ctx context.Context, next route.Route) (held int, err error) {
	old, home, err := r.both(ctx, next)
	switch {
	case err != nil:
		return 0, err
	case old.beside > 0:
		return 0, fmt.Errorf("nothing was done: %s has %s of jobs and tasks for %s, which a move does not carry",
			next.From, count(old.beside, "record"), text.Visible(next.Segment))
	}
	return len(old.held), growing(next, old, home)
}

// both reads what the two clusters of a move have of its segment.
func (r *routeSites) both(ctx context.Context, next route.Route) (old, home *segmentState, err error) {
	from, err := r.at(ctx, next.From)
	if err != nil {
		return nil, nil, err
	}
	to, err := r.at(ctx, next.Cluster)
	if err != nil {
		return nil, nil, err
	}
	if old, err = from.segment(ctx, next.Segment); err != nil {
		return nil, nil, err
	}
	home, err = to.segment(ctx, next.Segment)
	return old, home, err
}

// growing refuses tokens that fall.
func growing(next route.Route, old, home *segmentState) error {
	if home.revision < old.revision && !next.TokensMayFall {
		return fmt.Errorf("nothing was done: fencing tokens would fall, because %s is at revision %d and %s at %d; "+
			"begin a new cluster with \"etcdutl snapshot restore --bump-revision\", or give --tokens-may-fall if "+
			"nothing checks tokens", next.Cluster, home.revision, next.From, old.revision)
	}
	return nil
}
