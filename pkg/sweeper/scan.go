package sweeper

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

// maxAlertLines bounds the log lines of one scan about locks that started to alert.
const maxAlertLines = 100

// scan judges every lock: it counts what is held back, logs locks that started to alert, and queues locks that may
// become removable soon.
func (s *Sweeper) scan(c staleness.Conditions, now staleness.Moment) {
	heldBack := map[staleness.Rule]int{}
	alerting := make(map[string]int64, len(s.alerting))
	horizon := now.Mono + 2*s.scanInterval()
	soon := make([]candidate, 0, len(s.soon))
	started := 0
	locks := 0
	dueSoon := 0 // locks due within brakeWithin that the mode and the exclusions let it remove
	for r := range s.cfg.Locks() {
		locks++
		v := staleness.Judge(r, s.cfg.Policy, now)
		if v.State == metadata.StateAlerting || v.State == metadata.StateExpired || v.State == metadata.StateAbandoned {
			alerting[r.Name] = r.Token
			if token, logged := s.alerting[r.Name]; !logged || token != r.Token {
				started++
				s.logAlert(r, v, started)
			}
		}
		dueAt := s.dueAt(v)
		if dueAt.IsZero() {
			continue
		}
		d := staleness.Decide(r, s.cfg.Policy, c, now)
		if due := dueAt.Sub(now.Wall) <= brakeWithin; due && s.cfg.Mode == AutoUnlock && !s.excluded(r.Name) {
			dueSoon++
		}
		heldBack[d.HeldBack]++
		at := max(d.At, s.lastAttempt(r).next)
		if at <= horizon && !c.AlertOnly && c.NeverWentBack {
			soon = append(soon, candidate{at: at, deadline: dueAt, lock: r.Name})
		}
	}
	slices.SortFunc(soon, func(a, b candidate) int { return cmp.Compare(a.at, b.at) })
	s.soon = soon
	s.due = nil
	s.alerting = alerting
	s.forgetAttempts()
	s.setBrake(heldBack, dueSoon, locks)
	s.publish(heldBack)
}

// dueAt returns the wall time from which the lock's deadline or the proof that its holder has ended allows its removal;
// zero = never.
func (s *Sweeper) dueAt(v staleness.Judgement) time.Time {
	due := v.ExpiresAt
	if !due.IsZero() {
		due = due.Add(s.cfg.Policy.ClockSkew)
	}
	return protocol.Earlier(due, v.RemoveAt)
}

// publish makes available what is held back, by rule, to the metrics and the presence record.
func (s *Sweeper) publish(heldBack map[staleness.Rule]int) {
	var rules []string
	for _, rule := range staleness.HeldBackRules() {
		if heldBack[rule] > 0 {
			rules = append(rules, string(rule))
		}
	}
	s.observer.mu.Lock()
	s.observer.heldBack = rules
	s.observer.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heldBack = heldBack
}

func (s *Sweeper) logAlert(r *metadata.Record, v staleness.Judgement, started int) {
	s.metrics.alerting.Inc()
	switch {
	case started <= maxAlertLines:
		message := "the lock is alerting"
		if v.State == metadata.StateAbandoned {
			message = "the lock is abandoned"
		}
		addRecord(s.cfg.Log.Warn(), r).Str("state", string(v.State)).Msg(message)
	case started == maxAlertLines+1:
		s.cfg.Log.Warn().Int("more_than", maxAlertLines).Msg("many locks started to alert at once: not all are logged")
	}
}

// candidate is a lock that may become removable at a moment of the monotonic clock.
type candidate struct {
	at       time.Duration
	deadline time.Time
	lock     string
}

// compareMoment orders candidates by the moment at which they may become removable.
func compareMoment(c candidate, at time.Duration) int { return cmp.Compare(c.at, at) }

// removeTickets removes the tickets of waiters that should have given up by now, so that they do not block those behind
// them. Their leases do not end: the process of such a waiter is alive, but has forgotten its ticket. This takes at
// most a quarter of the scan interval, because locks matter more; the next round continues, in random order.
func (s *Sweeper) removeTickets(ctx context.Context) {
	c, now := s.conditions()
	watched := now.Mono-c.LastGap >= s.cfg.Policy.MinWarning
	if s.cfg.Mode != AutoUnlock || !watched || !c.Writable || !c.Fresh || !c.NeverWentBack ||
		c.WallClock != staleness.ClockVerified {
		return
	}
	try, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.scanInterval()/4)
	defer cancel()
	removed := 0
	for _, waiters := range s.cfg.Queues() {
		for _, w := range waiters {
			if !s.hasTimedOut(w, now) {
				continue
			}
			if removed == maxBatch || ctx.Err() != nil || try.Err() != nil || !s.removeTicket(try, w) {
				return
			}
			removed++
		}
	}
}

// hasTimedOut reports whether the waiter should have given up by now, both by the times that it wrote and, in case its
// clock is behind, by our monotonic clock.
func (s *Sweeper) hasTimedOut(w metadata.Waiter, now staleness.Moment) bool {
	if w.TimeoutAt.IsZero() || w.Since.IsZero() || now.Wall.Before(w.TimeoutAt.Add(s.cfg.Policy.ClockSkew)) {
		return false
	}
	return now.Mono-w.Seen >= w.TimeoutAt.Sub(w.Since.Time)
}

// removeTicket removes one ticket and reports whether to continue with others.
func (s *Sweeper) removeTicket(ctx context.Context, w metadata.Waiter) bool {
	err := s.cfg.RemoveTicket(ctx, w)
	if errors.Is(err, metadata.ErrChanged) {
		return true
	}
	event := s.cfg.Log.Warn()
	if err != nil {
		event = s.cfg.Log.Error().Str("reason", text.Visible(err.Error()))
	}
	event.Str("lock", text.Visible(w.Name)).Str("owner", text.Visible(w.Owner)).
		Str("hostname", text.Visible(w.Hostname)).Int64("pid", w.PID).
		Str("uuid", text.Visible(w.UUID)).Int64("revision", w.Revision).
		Str("timeout_at", w.TimeoutAt.UTC().Format(time.RFC3339)).
		Bool("removed", err == nil).Msg("a waiter's ticket is past its timeout")
	return err == nil
}
