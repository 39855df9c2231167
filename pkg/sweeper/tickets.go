package sweeper

import (
	"context"
	"errors"

	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

// removeTickets removes the tickets of waiters that should have given up by now, so that they do not block those behind
// them. Their leases do not end: such a waiter's process is alive, but has forgotten its ticket. This takes at most a
// quarter of the scan interval, because locks matter more; the next round continues, in random order.
func (s *Sweeper) removeTickets(ctx context.Context) {
	c, now := s.conditions()
	watched := now.Mono-c.LastGap >= s.cfg.Policy.MinWarning
	if s.cfg.Mode != AutoUnlock || !watched || !c.Writable || !c.Fresh || !c.Forward ||
		c.WallClock != staleness.Verified {
		return
	}
	try, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.scanInterval()/4)
	defer cancel()
	removed := 0
	for _, waiters := range s.cfg.Queues() {
		for _, w := range waiters {
			if !s.overdue(w, now) {
				continue
			}
			if removed == maxBatch || ctx.Err() != nil || try.Err() != nil || !s.removeTicket(try, w) {
				return
			}
			removed++
		}
	}
}

// overdue reports whether the waiter should have given up by now: by the times that it wrote, and by our monotonic
// clock in case its clock is behind.
func (s *Sweeper) overdue(w metadata.Waiter, now staleness.Moment) bool {
	if w.TimeoutAt.IsZero() || w.Since.IsZero() || now.Wall.Before(w.TimeoutAt.Add(s.cfg.Policy.ClockSkew)) {
		return false
	}
	return now.Mono-w.Seen >= w.TimeoutAt.Sub(w.Since.Time)
}

// removeTicket removes one ticket, and reports whether it makes sense to continue with others.
func (s *Sweeper) removeTicket(ctx context.Context, w metadata.Waiter) bool {
	err := s.cfg.RemoveTicket(ctx, w)
	if errors.Is(err, metadata.ErrChanged) {
		return true
	}
	event := s.cfg.Log.Warn()
	if err != nil {
		event = s.cfg.Log.Error().Str("reason", text.Visible(err.Error()))
	}
	event.Str("lock", text.Visible(w.Lock)).Str("owner", text.Visible(w.Owner)).
		Str("hostname", text.Visible(w.Hostname)).Int64("pid", w.PID).
		Str("uuid", text.Visible(w.UUID)).Int64("revision", w.Revision).
		Str("timeout_at", w.TimeoutAt.UTC().Format("2006-01-02T15:04:05Z07:00")).
		Bool("removed", err == nil).Msg("a waiter's ticket is past its timeout")
	return err == nil
}
