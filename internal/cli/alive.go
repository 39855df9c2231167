package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/clustermutex/unlocker/internal/locktxn"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

type aliveOptions struct {
	app   *app
	names names
	uuid  string
	hold  time.Duration
}

func newAlive(a *app) *cobra.Command {
	o := &aliveOptions{app: a}
	cmd := &cobra.Command{
		Use:   "alive NAME --uuid UUID [PROGRESS...]",
		Short: "Put off alert and auto-unlock of a lock that you hold",
		Long: `Say that the work under a lock makes progress: alert and auto-unlock are put off, by as much as at the last time, or until --for
from now. The words of progress are shown to people. Deadlines never move back.

"mutexctl run" extends its lock by itself and repeats its own deadlines; there this is not needed.

Ends with 3 when another holds the lock, 4 when nobody does.`,
		Example: `  mutexctl alive nightly/report --uuid "$uuid" 3 of 12 files done
  mutexctl alive db/migrate --uuid "$uuid" --for 1h`,
		Args:              wants(1, -1, "NAME"),
		ValidArgsFunction: a.completeNames,
	}
	o.names.flag(cmd)
	uuidFlag(cmd, &o.uuid)
	cmd.Flags().DurationVar(&o.hold, "for", 0, "how long from now (default: as at the last time)")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		name, err := o.names.any(args[0])
		if err != nil {
			return err
		}
		switch {
		case o.uuid == "":
			return usagef("give the --uuid of your hold")
		case o.hold < 0:
			return usagef("--for is %v, it must be positive", o.hold)
		}
		return o.run(cmd.Context(), name, strings.Join(args[1:], " "))
	}
	return cmd
}

func (o *aliveOptions) run(ctx context.Context, name, progress string) error {
	s, err := o.app.open(ctx)
	if err != nil {
		return err
	}
	defer s.close()
	doc, err := s.get(ctx, name)
	if err != nil {
		return err
	}
	h := locktxn.Hold{Lock: name, UUID: o.uuid, Token: doc.Token}
	if err := s.stillHeld(&doc, h); err != nil {
		return err
	}
	if doc.AutoUnlockAt.IsZero() {
		return fmt.Errorf("the record of %s has no readable auto_unlock_at that could be put off", visible(name))
	}
	alert, unlock, err := o.spans(&doc.Record)
	if err != nil {
		return err
	}
	now := o.app.Now()
	asking, cancel := s.request(ctx)
	defer cancel()
	resp, err := locktxn.Alive(s.layout, h, metadata.FormatTime(now.Add(alert)), metadata.FormatTime(now.Add(unlock)),
		metadata.FormatAlive(now, progress)).Commit(asking, s.client)
	if err != nil {
		return s.explain(ctx, "extend "+visible(name)+" (it may have been done)", err)
	}
	if resp.Succeeded {
		_, err := fmt.Fprintf(o.app.Stdout, "extended %s until %s\n", visible(name), instant(now.Add(unlock), now))
		return err
	}
	doc, err = s.get(ctx, name)
	if err != nil {
		return err
	}
	if err := s.stillHeld(&doc, h); err != nil {
		return err
	}
	_, err = fmt.Fprintf(o.app.Stdout, "%s is held until %s, which is later\n", visible(name), instant(doc.AutoUnlockAt, now))
	return err
}

// spans are how far from now the deadlines will be: as far as the holder set them when it wrote them last.
func (o *aliveOptions) spans(r *metadata.Record) (alert, unlock time.Duration, err error) {
	base := r.LockedAt
	if r.Alive != nil && !r.Alive.At.IsZero() {
		base = r.Alive.At
	}
	alert, unlock = r.AlertAt.Sub(base), r.AutoUnlockAt.Sub(base)
	if base.IsZero() || r.AlertAt.IsZero() || alert <= 0 || unlock < alert {
		if o.hold == 0 {
			return 0, 0, usagef("the record does not tell how long %s was taken for: give --for", visible(r.Name))
		}
		return o.hold, o.hold, nil
	}
	if o.hold > 0 { // people are alerted at the same part of the time
		return time.Duration(float64(o.hold) * (float64(alert) / float64(unlock))), o.hold, nil
	}
	return alert, unlock, nil
}
