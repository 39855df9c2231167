package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/clustermutex/unlocker/internal/cli/term"
	"github.com/clustermutex/unlocker/internal/locks"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/text"
)

// query returns the query that the argument is, such as host:node-7; nil if it can only be the name of a lock.
func (o *forceUnlockOptions) query(arg string) *locks.Query {
	q := locks.ParseQuery(arg, locks.AboutLocks)
	if o.endDelayOnly || o.uuid != "" || o.names.escaped || !q.HasKey() {
		return nil
	}
	return q
}

// endBulk ends the holds that the query finds, once the operator has typed their number.
func (o *forceUnlockOptions) endBulk(ctx context.Context, s *session, q *locks.Query) error {
	if err := q.Err(); err != nil {
		return usageErrorf("%w", err)
	}
	all, err := s.snapshot(ctx)
	if err != nil {
		return err
	}
	o.policies = all.combined
	now := s.app.Now()
	found, err := all.model(all.combined, now).Search(ctx, q, locks.Order{By: locks.MostUrgent}, now)
	if err != nil {
		return err
	}
	chosen := locks.ChooseBulkHolds(found.Rows, o.evenAlive, now)
	left := ""
	if chosen.LeftOut > 0 {
		left = fmt.Sprintf("%s left out, alive within the last minute: --even-alive ends these, too",
			text.Count(chosen.LeftOut, "hold"))
	}
	if len(chosen.Rows) == 0 {
		return errors.Join(o.app.writeNotes(left), noLockErrorf("nothing was done: no hold to end is found"))
	}
	if err := o.confirmBulk(ctx, chosen.Rows, left, now); err != nil {
		return err
	}
	return o.endAll(ctx, s, chosen.Rows)
}

// confirmBulk shows the holds and asks for their number.
func (o *forceUnlockOptions) confirmBulk(ctx context.Context, rows []*locks.Row, left string, now time.Time) error {
	var t term.Table
	t.Row("LOCK", "OWNER", "HOST:PID", "LAST ALIVE", "HELD")
	for _, r := range rows {
		t.Row(text.Visible(r.Name), fullText(r.Owner), locks.HostPID(fullText(r.Hostname), r.PID),
			relative(r.LastAlive(), now), age(r.LockedAt, now))
	}
	if err := t.Write(o.app.Stderr); err != nil {
		return err
	}
	if err := o.app.writeNotes(left); err != nil {
		return err
	}
	return o.app.confirm(ctx, "\nTheir records are deleted; the holders are NOT stopped and may still be working. The "+
		"next waiters get the locks at once, or after the lock delay of each.\n"+
		"Type the number of these holds to force-unlock them: ", ": that is not the number of holds",
		strconv.Itoa(len(rows)))
}

// endAll ends these holds one after the other. It spares those that have changed since they were shown.
func (o *forceUnlockOptions) endAll(ctx context.Context, s *session, rows []*locks.Row) error {
	spared := 0
	for _, r := range rows {
		on := protocol.ActionTarget{Hold: r.Record, LockDelayAfter: o.delay(r.Record), IfUnchanged: true}
		_, err := o.perform(ctx, s, protocol.VerbForceUnlock, on, o.action(s, r.Record), "force-unlock")
		if err == nil {
			continue
		}
		if code := status(err); code != ExitHeld && code != ExitNoLock {
			return err
		}
		spared++
		s.app.note("%v", err)
	}
	_, err := fmt.Fprintf(s.app.Stdout, "force-unlocked %s of %s\n", text.Thousands(len(rows)-spared),
		text.Count(len(rows), "hold"))
	if spared > 0 {
		return errors.Join(err, heldErrorf("%s spared", text.Count(spared, "hold")))
	}
	return err
}
