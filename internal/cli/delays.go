package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/clustermutex/unlocker/internal/cli/term"
	"github.com/clustermutex/unlocker/internal/lockjson"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

type delaysOptions struct{ listing }

func newDelays(a *app) *cobra.Command {
	o := &delaysOptions{listing{app: a}}
	cmd := &cobra.Command{
		Use:   "delays [PATTERN...]",
		Short: "List lock delays: locks that may not be taken yet",
		Long: `List the lock delays, by lock. A lock delay follows a hold that was ended by force or because of its
deadline, if its record or the unlocker asks for one: the former holder may still be working. Until the
delay is over, clients that honor lock delays do not take the lock. It ends by itself; end-delay ends it now.
A PATTERN selects names: * stands for any text, slashes included, ? for one character.

` + jsonLines + lockjson.DelayShape().Help(),
		Example: `  mutexctl delays
  mutexctl delays 'billing/*' -o json | jq -r .owner`,
	}
	o.format = term.Output(cmd, term.TableFormat, term.JSONFormat, term.NameFormat)
	o.globs.fromArguments(cmd, o.run)
	return cmd
}

func (o *delaysOptions) run(ctx context.Context) error {
	all, err := o.app.readAll(ctx)
	if err != nil {
		return err
	}
	shown := slices.DeleteFunc(all.delays, func(d metadata.Delay) bool { return !o.globs.match(d.Lock) })
	slices.SortFunc(shown, func(a, b metadata.Delay) int { return strings.Compare(a.Lock, b.Lock) })
	now := o.app.Now()
	switch o.format.String() {
	case term.JSONFormat:
		return writeLines(o.app.Stdout, shown, func(d metadata.Delay) any { return lockjson.NewDelay(&d, now) })
	case term.NameFormat:
		return writeNames(o.app.Stdout, shown, func(d metadata.Delay) string { return d.Lock })
	}
	t := term.Table{}
	t.Row("LOCK", "ENDS", "AFTER THE HOLD OF", "HOST", "ENDED", "BY", "WAITING", "PURPOSE")
	for _, d := range shown {
		waiting := len(all.waiters[d.Lock])
		if base, _, ok := metadata.ParseShare(d.Lock); ok && waiting == 0 {
			waiting = len(all.waiters[base])
		}
		t.Row(text.Visible(d.Lock), relative(d.Until(), now), shortText(d.Owner), shortText(d.Hostname),
			relative(d.At.Time, now), shortText(d.By), strconv.Itoa(waiting), shortText(d.Purpose))
	}
	return o.app.writeTable(&t, text.Count(len(shown), "lock delay"))
}

type endDelayOptions struct{ operatorAction }

func newEndDelay(a *app) *cobra.Command {
	o := &endDelayOptions{}
	cmd := &cobra.Command{
		Use:   "end-delay NAME --reason REASON",
		Short: "End a lock delay, as an operator",
		Long: `End a lock delay early: the next waiter gets the lock at once. Do so only if you know that the former
holder is no longer working. With --uuid, only the delay after the hold that you saw is ended.
End the delays of a semaphore or read-write lock one at a time, by their own names: pool#2.

Exits with 4 when there is no delay. It is recorded in the audit trail with the reason, user@host and
the source "cli".`,
		Example: `  mutexctl end-delay nightly/report --reason 'node-7 is switched off'
  mutexctl end-delay nightly/report --uuid 3f1c6b1e-6f0a-4c3a-9f57-0d3a6f1f2a55 --reason 'node-7 is switched off'`,
		ValidArgsFunction: a.completeNames,
	}
	o.flags(cmd, protocol.ActionEndDelay, "why, for the audit trail (required)")
	o.names.onLock(cmd, a, func() error { return o.check(protocol.ActionEndDelay) }, o.run)
	return cmd
}

func (o *endDelayOptions) run(ctx context.Context, s *session, name string) error {
	l, err := s.read(ctx, name)
	if err != nil {
		return err
	}
	delays := l.Delays
	i := slices.IndexFunc(delays, func(d metadata.Delay) bool { return d.Lock == name })
	switch {
	case i < 0 && len(delays) > 0:
		return noLockf("nothing was done: %s; name one of these: %s", s.delayedBy(name, delays),
			namesOf(delays, func(d metadata.Delay) string { return d.Lock }))
	case i < 0:
		return noLockf("nothing was done: there is no lock delay of %s", text.Visible(name))
	}
	d := delays[i]
	if o.uuid != "" && o.uuid != d.UUID {
		return heldf("nothing was done: it is %s, whose uuid is %s", protocol.DelayWords(&d, s.app.Now()),
			text.Visible(d.UUID))
	}
	request, cancel := s.request(ctx)
	defer cancel()
	action := o.entry(s, protocol.Action{Lock: name, UUID: d.UUID, Token: d.Token, Revision: d.Revision,
		Holder: protocol.DelayWords(&d, s.app.Now())})
	_, err = s.store.Do(request, protocol.ActionEndDelay, protocol.Subject{Delay: &d}, action)
	switch {
	case errors.Is(err, metadata.ErrChanged):
		return noLockf("nothing was done: that lock delay of %s has ended", text.Visible(name))
	case err != nil:
		return s.explain(ctx, "end the lock delay of "+text.Visible(name), err)
	}
	_, err = fmt.Fprintf(s.app.Stdout, "ended the lock delay of %s: %s\n", text.Visible(name),
		protocol.DelayWords(&d, s.app.Now()))
	return err
}

// delayedBy says in one line why a lock that nobody holds is not to be taken yet; empty without a delay.
func (s *session) delayedBy(name string, delays []metadata.Delay) string {
	if len(delays) == 0 {
		return ""
	}
	line := fmt.Sprintf("nobody holds %s: there is %s", text.Visible(name),
		protocol.DelayWords(&delays[0], s.app.Now()))
	if more := len(delays) - 1; more > 0 {
		line += ", and " + text.Count(more, "other")
	}
	return line
}

// namesOf lists the names of locks, as far as they fit in two cells of a table.
func namesOf[T any](all []T, name func(T) string) string {
	names := make([]string, len(all))
	for i, one := range all {
		names[i] = text.Visible(name(one))
	}
	return term.Clip(strings.Join(names, ", "), 2*term.CellColumns)
}
