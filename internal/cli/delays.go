package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/clustermutex/unlocker/internal/cli/term"
	"github.com/clustermutex/unlocker/internal/lockjson"
	"github.com/clustermutex/unlocker/internal/locks"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

func (o *listOptions) listDelays(all *snapshot, now time.Time) error {
	shown := slices.DeleteFunc(slices.Clone(all.view.Delays()),
		func(d metadata.LockDelay) bool {
			subject := locks.Subject{Name: d.Name, Owner: d.Owner, Host: d.Hostname, Purpose: d.Purpose, Hold: d.UUID}
			return !o.query.Matches(&subject, d.At.Time)
		})
	switch o.format.String() {
	case term.JSONFormat:
		return writeLines(o.app.Stdout, shown, func(d metadata.LockDelay) any { return lockjson.NewDelay(&d, now) })
	case term.NameFormat:
		return writeNames(o.app.Stdout, shown, func(d metadata.LockDelay) string { return d.Name })
	}
	t := term.Table{}
	t.Row("LOCK", "ENDS", "AFTER THE HOLD OF", "HOST", "ENDED", "BY", "WAITING", "PURPOSE")
	for _, d := range shown {
		waiting := len(all.view.Queues()[d.Name])
		if base, _, ok := metadata.ParseShare(d.Name); ok && waiting == 0 {
			waiting = len(all.view.Queues()[base])
		}
		t.Row(text.Visible(d.Name), relative(d.Until(), now), shortText(d.Owner), shortText(d.Hostname),
			relative(d.At.Time, now), shortText(d.By), strconv.Itoa(waiting), shortText(d.Purpose))
	}
	return o.app.writeTable(&t, text.Count(len(shown), "lock delay"))
}

// endDelay ends the lock delay of a lock or of a share: only the one after the hold of --uuid, if that is given.
func (o *operatorAction) endDelay(ctx context.Context, s *session, name string) error {
	l, err := s.read(ctx, name)
	if err != nil {
		return err
	}
	delays := l.Delays
	i := slices.IndexFunc(delays, func(d metadata.LockDelay) bool { return d.Name == name })
	switch {
	case i < 0 && len(delays) > 0:
		return noLockErrorf("nothing was done: %s; name one of these: %s", s.delayText(name, delays),
			namesOf(delays, func(d metadata.LockDelay) string { return d.Name }))
	case i < 0:
		return noLockErrorf("nothing was done: there is no lock delay of %s", text.Visible(name))
	}
	d := delays[i]
	if o.uuid != "" && o.uuid != cmp.Or(d.UUID, noUUID) {
		return heldErrorf("nothing was done: it is %s, whose uuid is %s", protocol.DescribeDelay(&d, s.app.Now()),
			text.Visible(d.UUID))
	}
	request, cancel := s.request(ctx)
	defer cancel()
	action := o.entry(s, protocol.Action{Lock: name, UUID: d.UUID, Token: d.Token, Revision: d.Revision,
		Holder: protocol.DescribeDelay(&d, s.app.Now())})
	_, err = s.store.Perform(request, protocol.VerbEndDelay, protocol.ActionTarget{Delay: &d}, action)
	switch {
	case errors.Is(err, metadata.ErrChanged):
		return noLockErrorf("nothing was done: that lock delay of %s has ended", text.Visible(name))
	case err != nil:
		return s.explain(ctx, "end the lock delay of "+text.Visible(name), err)
	}
	_, err = fmt.Fprintf(s.app.Stdout, "ended the lock delay of %s: %s\n", text.Visible(name),
		protocol.DescribeDelay(&d, s.app.Now()))
	return err
}

// delayText returns a line that says that a lock delay keeps others from a lock that nobody holds; empty without a
// delay.
func (s *session) delayText(name string, delays []metadata.LockDelay) string {
	if len(delays) == 0 {
		return ""
	}
	line := fmt.Sprintf("nobody holds %s: there is %s", text.Visible(name),
		protocol.DescribeDelay(&delays[0], s.app.Now()))
	if more := len(delays) - 1; more > 0 {
		line += ", and " + text.Count(more, "other")
	}
	return line
}

// namesOf lists the names of locks, clipped to the width of two cells of a table.
func namesOf[T any](all []T, name func(T) string) string {
	names := make([]string, len(all))
	for i, one := range all {
		names[i] = text.Visible(name(one))
	}
	return term.Clip(strings.Join(names, ", "), 2*term.CellColumns)
}
