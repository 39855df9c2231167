package sweeper

import (
	"container/heap"
	"context"
	"time"

	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

// The brake engages if more than half of all locks, and more than brakeAbove, are due within brakeWithin. It lets
// through one removal per brakeEvery.
const (
	brakeAbove  = 20
	brakeWithin = time.Minute
	brakeEvery  = time.Second
)

// maxAlertLines bounds the log lines of one scan about locks that started to alert.
const maxAlertLines = 100

// findings holds what a scan counted.
type findings struct {
	states   map[staleness.State]int
	heldBack map[staleness.Rule]int
	dueSoon  int // locks that are due within a minute, and may be removed
	setAside int
	brake    bool
}

// scanChunk is the number of locks after which a scan pauses to remove what became due meanwhile.
const scanChunk = 2000

// scan judges every lock that is due soon: it counts states, logs what started to alert, and queues what may become
// removable soon.
func (s *Sweeper) scan(ctx context.Context, c staleness.Conditions, now staleness.Moment) {
	s.scanning = true
	defer func() { s.scanning = false }()
	f := findings{states: map[staleness.State]int{}, heldBack: map[staleness.Rule]int{}}
	alerting := make(map[string]int64, len(s.alerting))
	horizon := now.Mono + 2*s.scanInterval()
	soon := s.recycled[:0]
	started := 0
	survey := s.cfg.Survey(now)
	f.states[staleness.Held] = survey.Idle
	locks := survey.Idle
	for r := range survey.DueSoon {
		if locks++; locks%scanChunk == 0 {
			s.removeBatch(ctx)
		}
		v := staleness.Judge(r, s.cfg.Policy, now)
		f.states[v.State]++
		if v.State == staleness.Alerting || v.State == staleness.Expired || v.State == staleness.Abandoned {
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
		if due := dueAt.Sub(now.Wall) <= brakeWithin; due && !s.spared(r) {
			f.dueSoon++
		}
		f.heldBack[d.HeldBack]++
		at := max(d.At, s.notBefore(r))
		if at <= horizon && !c.AlertOnly && c.Forward {
			soon = append(soon, candidate{at: at, deadline: dueAt, lock: r.Name})
		}
	}
	soon = append(soon, s.retries...) // the scan left them out while they were in flight
	s.retries = s.retries[:0]
	s.soon, s.recycled, s.alerting = soon, s.soon, alerting
	heap.Init(&s.soon)
	s.due.queue = s.due.queue[:0]
	f.setAside = s.forgetTried()
	s.engageBrake(&f, locks)
	s.publish(f)
}

// dueAt returns the wall time from which the lock's deadline or the proof that its holder has ended allows its removal;
// zero = never.
func (s *Sweeper) dueAt(v staleness.Verdict) time.Time {
	due := v.AutoUnlockAt
	if !due.IsZero() {
		due = due.Add(s.cfg.Policy.ClockSkew)
	}
	if !v.RemoveAt.IsZero() && (due.IsZero() || v.RemoveAt.Before(due)) {
		return v.RemoveAt
	}
	return due
}

// spared reports whether the operator does not want the lock removed.
func (s *Sweeper) spared(r *metadata.Record) bool {
	return s.cfg.Mode != AutoUnlock || s.excluded != nil && s.excluded(r.Name)
}

// engageBrake slows removals down if so many locks are due that something else must be wrong: a clock, a deployment, a
// disaster. It slows them down and never stops them.
func (s *Sweeper) engageBrake(f *findings, locks int) {
	f.brake = f.dueSoon > brakeAbove && 2*f.dueSoon > locks
	if f.brake {
		f.heldBack[staleness.Brake] = f.heldBack[""]
	}
	if f.brake != s.brake {
		s.cfg.Log.Error().Bool("on", f.brake).Int("due", f.dueSoon).Int("locks", locks).
			Msg("brake: while most locks are due within a minute, this unlocker removes only one a second")
	}
	s.brake = f.brake
}

// publish makes the findings available to the metrics, the page and the presence record.
func (s *Sweeper) publish(f findings) {
	var heldBack []string
	for _, rule := range staleness.HoldBacks() {
		if f.heldBack[rule] > 0 {
			heldBack = append(heldBack, string(rule))
		}
	}
	s.observer.report(heldBack)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.found = f
}

// logAlert logs and counts that a lock started to alert.
func (s *Sweeper) logAlert(r *metadata.Record, v staleness.Verdict, started int) {
	s.metrics.alerting.Inc()
	switch {
	case started <= maxAlertLines:
		message := "the lock is alerting"
		if v.State == staleness.Abandoned {
			message = "the lock is abandoned"
		}
		describe(s.cfg.Log.Warn(), r).Str("state", string(v.State)).Msg(message)
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

// queue is a heap of candidates, with the one that becomes removable first on top.
type queue []candidate

func (q queue) Len() int           { return len(q) }
func (q queue) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }
func (q queue) Less(i, j int) bool { return q[i].at < q[j].at }
func (q *queue) Push(c any)        { *q = append(*q, c.(candidate)) }
func (q *queue) Pop() any {
	last := len(*q) - 1
	c := (*q)[last]
	*q = (*q)[:last]
	return c
}

// dueQueue is a heap of candidates whose moment has come, with the oldest deadline on top: after a start or a gap, the
// moments themselves are arbitrary.
type dueQueue struct{ queue }

func (q dueQueue) Less(i, j int) bool { return q.queue[i].deadline.Before(q.queue[j].deadline) }
