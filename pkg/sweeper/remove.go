package sweeper

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

const (
	// removeTimeout bounds one commit, also one that is finished after the end of ctx.
	removeTimeout = 10 * time.Second

	maxFailures   = 6 // before a removal is set aside
	setAsideFor   = 5 * time.Minute
	retryConflict = time.Second      // after a conflict: the view will catch up soon
	viewCatchesUp = 10 * time.Second // after a success, if the view still shows the lock

	// maxBatch bounds how much one commit delays other clients, whose writes wait behind it.
	maxBatch = 32
	// maxPendingCommits batches keep etcd busy while one is settled and the next is decided.
	maxPendingCommits = 2
)

// removalAttempt is the outcome of an attempted removal, for one state of one hold.
type removalAttempt struct {
	token    int64
	deadline int64 // revision of the deadline
	proof    int64 // revision of the proof that the holder has ended, 0 = there was none
	failures int
	next     time.Duration // not before this
}

func (t removalAttempt) isOf(r *metadata.Record) bool {
	return t.token == r.Token && t.deadline == r.DeadlineRevision && t.proof == proofOf(r)
}

func proofOf(r *metadata.Record) int64 {
	if !r.ProvenDead() {
		return 0
	}
	return r.Death.Revision
}

// lastAttempt returns the last attempt to remove the lock; the zero attempt if there was none.
func (s *Sweeper) lastAttempt(r *metadata.Record) removalAttempt {
	if t := s.attempts[r.Name]; t.isOf(r) {
		return t
	}
	return removalAttempt{}
}

func (s *Sweeper) recordAttempt(r *metadata.Record, failures int, next time.Duration) {
	s.attempts[r.Name] = removalAttempt{token: r.Token, deadline: r.DeadlineRevision, proof: proofOf(r),
		failures: failures, next: next}
}

// forgetAttempts forgets holds that are gone or were extended.
func (s *Sweeper) forgetAttempts() {
	maps.DeleteFunc(s.attempts, func(name string, t removalAttempt) bool {
		r := s.cfg.Lock(name)
		return r == nil || !t.isOf(r)
	})
}

// dueLock is a lock whose removal all rules allow.
type dueLock struct {
	record    *metadata.Record
	allowedAt time.Duration
	proof     bool // it is removed because its holder is proven to have ended
}

// removeDue removes due locks, batch after batch, until none is left, the next scan is due, or ctx ends. It removes at
// least one batch, because the next scan is already due if the last one took long.
func (s *Sweeper) removeDue(ctx context.Context) {
	for s.removeBatch(ctx) && s.cfg.Clock() < s.nextScan {
	}
	s.awaitCommits(0)
}

// removeBatch sends one batch of due locks and reports whether there was one. awaitCommits learns its outcome later.
func (s *Sweeper) removeBatch(ctx context.Context) bool {
	size, pending := maxBatch, maxPendingCommits
	if s.brake.on {
		size, pending = 1, 1
	}
	s.awaitCommits(pending - 1)
	if ctx.Err() != nil || len(s.soon)+len(s.due) == 0 || s.brake.on && s.cfg.Clock() < s.brake.next {
		return false
	}
	c, now := s.conditions()
	batch := s.nextBatch(c, now, size)
	if len(batch) > 0 {
		s.send(ctx, batch, now)
	}
	return len(batch) > 0
}

// nextBatch takes up to size due candidates and decides again about each, with its current record.
func (s *Sweeper) nextBatch(c staleness.Conditions, now staleness.Moment, size int) []dueLock {
	s.takeDue(now.Mono)
	var batch []dueLock
	for len(batch) < size && len(s.due) > 0 {
		next := s.due[0]
		s.due = s.due[1:]
		r := s.cfg.Lock(next.lock)
		if r == nil {
			continue
		}
		d := staleness.Decide(r, s.cfg.Policy, c, now)
		at := max(d.At, s.lastAttempt(r).next)
		switch {
		case at > now.Mono:
			next.at = at
			s.requeue(next)
		case d.HeldBack == staleness.RuleExclude, d.HeldBack == "" && s.cfg.Mode == DryRun:
			s.logSkipped(r, d, now)
		case d.HeldBack == "":
			batch = append(batch, dueLock{record: r, allowedAt: max(d.At, s.observer.allowedSince()), proof: d.Proof})
		}
	}
	return batch
}

// takeDue moves the candidates whose moment has come from soon to due. The oldest deadline comes first, because after a
// start or a gap the moments are arbitrary.
func (s *Sweeper) takeDue(now time.Duration) {
	n, _ := slices.BinarySearchFunc(s.soon, now+1, compareMoment)
	if n == 0 {
		return
	}
	s.due = append(s.due, s.soon[:n]...)
	s.soon = s.soon[n:]
	slices.SortFunc(s.due, func(a, b candidate) int { return a.deadline.Compare(b.deadline) })
}

// requeue queues a candidate again, unless the next scan comes first and finds it anyway.
func (s *Sweeper) requeue(c candidate) {
	if c.at <= s.nextScan+s.scanInterval() {
		i, _ := slices.BinarySearchFunc(s.soon, c.at, compareMoment)
		s.soon = slices.Insert(s.soon, i, c)
	}
}

// logSkipped logs, once for each deadline of a hold, that the lock is not removed.
func (s *Sweeper) logSkipped(r *metadata.Record, d staleness.Decision, now staleness.Moment) {
	s.recordAttempt(r, 0, staleness.Never)
	s.metrics.removals.WithLabelValues("skipped").Inc()
	reason := "dry run: it would be removed"
	if d.HeldBack == staleness.RuleExclude {
		reason = "it is excluded by name"
	}
	addRecord(s.cfg.Log.Warn(), r).Str("result", "skipped").Str("reason", reason+": "+s.reason(r, d.Proof, now)).
		Msg("lock not removed")
}

// pendingCommit is a batch that was sent and whose outcome is not known yet.
type pendingCommit struct {
	batch    []dueLock
	removals []lockrecord.Removal
	done     chan commitResult
}

type commitResult struct {
	errs []error
	at   staleness.Moment
}

// send commits one batch and finishes it even if ctx ends meanwhile. Until its outcome is known, its locks are not
// tried again.
func (s *Sweeper) send(ctx context.Context, batch []dueLock, now staleness.Moment) {
	p := pendingCommit{batch: batch, removals: make([]lockrecord.Removal, len(batch)), done: make(chan commitResult, 1)}
	for i, d := range batch {
		cause := metadata.EndingAutoUnlocked
		if d.proof {
			cause = metadata.EndingAbandoned
		}
		ending := lockrecord.NewEnding(d.record, cause, s.cfg.ID, s.reason(d.record, d.proof, now), now.Wall)
		p.removals[i] = lockrecord.Removal{Record: d.record, Ending: ending}
		if !d.proof {
			p.removals[i].Delay = d.record.EffectiveLockDelay(s.cfg.Policy.LockDelay)
		}
		s.recordAttempt(d.record, s.lastAttempt(d.record).failures, staleness.Never)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeTimeout)
	go func() {
		defer cancel()
		errs := s.cfg.Remove(ctx, p.removals)
		p.done <- commitResult{errs, s.cfg.moment()}
	}()
	s.pending = append(s.pending, p)
}

// awaitCommits waits until at most limit batches are in flight, and records the outcomes of the others.
func (s *Sweeper) awaitCommits(limit int) {
	for len(s.pending) > limit {
		p := s.pending[0]
		s.pending = s.pending[1:]
		result := <-p.done
		s.brake.next = result.at.Mono + brakeEvery
		for i, d := range p.batch {
			err := fmt.Errorf("%d answers to %d removals", len(result.errs), len(p.batch))
			if len(result.errs) == len(p.batch) {
				err = result.errs[i]
			}
			s.recordOutcome(d, p.removals[i].Ending.Reason, err, result.at)
		}
	}
}

// recordOutcome counts and logs the outcome of one removal, and stores it for the next attempt.
func (s *Sweeper) recordOutcome(d dueLock, reason string, err error, now staleness.Moment) {
	r := d.record
	switch {
	case err == nil:
		s.recordAttempt(r, 0, now.Mono+viewCatchesUp)
		s.metrics.countRemoval(r, d.proof, now.Wall, now.Mono-d.allowedAt)
		addRecord(s.cfg.Log.Warn(), r).Str("result", "success").Str("reason", reason).Msg("lock removed")
	case errors.Is(err, metadata.ErrChanged):
		s.recordAttempt(r, 0, now.Mono+retryConflict)
		s.metrics.removals.WithLabelValues("conflict").Inc()
		addRecord(s.cfg.Log.Info(), r).Str("result", "conflict").
			Str("reason", "the holder or another unlocker was faster").Msg("lock not removed")
	default:
		s.recordFailure(r, err, now)
	}
	s.requeue(candidate{at: s.attempts[r.Name].next, deadline: r.AutoUnlockAt, lock: r.Name})
}

// recordFailure records a failure. The wait doubles each time; a removal that failed six times is set aside, and
// retried every few minutes.
func (s *Sweeper) recordFailure(r *metadata.Record, err error, now staleness.Moment) {
	failures := s.lastAttempt(r).failures + 1
	wait := setAsideFor
	if failures < maxFailures {
		wait = time.Second << (failures - 1)
	}
	s.recordAttempt(r, failures, now.Mono+wait)
	s.metrics.removals.WithLabelValues("error").Inc()
	addRecord(s.cfg.Log.Error(), r).Str("result", "error").Str("reason", text.Visible(err.Error())).
		Int("failures", failures).Stringer("retry_in", wait).Msg("lock not removed")
}

// The brake engages if more than half of all locks, and more than brakeAbove, are due within brakeWithin: a clock, a
// deployment or a disaster must be the cause. It lets through one removal per brakeEvery, and so never stops them.
const (
	brakeAbove  = 20
	brakeWithin = time.Minute
	brakeEvery  = time.Second
)

type brake struct {
	on   bool
	next time.Duration // when it lets through the next removal
}

// setBrake switches the brake on or off, as a scan has found.
func (s *Sweeper) setBrake(heldBack map[staleness.Rule]int, dueSoon, locks int) {
	on := dueSoon > brakeAbove && 2*dueSoon > locks
	if on {
		heldBack[staleness.RuleBrake] = heldBack[""]
	}
	if on != s.brake.on {
		s.cfg.Log.Error().Bool("on", on).Int("due", dueSoon).Int("locks", locks).
			Msg("brake: while most locks are due within a minute, this unlocker removes them slowly")
	}
	s.brake.on = on
}
