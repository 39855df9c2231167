package host

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/clustermutex/unlocker/pkg/metadata"
)

const (
	maxWrites = 8 // statements written at the same time
	maxRetry  = 30 * time.Second
)

// publishAll writes all statements until ctx ends, and retries those that fail.
func (w *Witness) publishAll(ctx context.Context) {
	retry := w.pauses.retry
	for {
		next := w.pauses.viewLag
		if w.writeAll(ctx) && w.isWritable(ctx) {
			retry = w.pauses.retry
		} else {
			next = retry
			retry = min(2*retry, maxRetry)
		}
		select {
		case <-ctx.Done():
			return
		case <-w.publishNow:
		case <-time.After(next):
		}
	}
}

// writeAll tries to write each pending statement once, and reports whether none is left.
func (w *Witness) writeAll(ctx context.Context) (done bool) {
	var all sync.WaitGroup
	slots := make(chan struct{}, maxWrites)
	var failed atomic.Bool
	for _, l := range w.unpublished() {
		slots <- struct{}{}
		if failed.Load() { // the others would wait for etcd, too
			break
		}
		all.Go(func() {
			if !w.writeStatement(ctx, l) {
				failed.Store(true)
			}
			<-slots
		})
	}
	all.Wait()
	return len(w.unpublished()) == 0
}

// isWritable reports whether etcd accepts statements. It asks etcd only after a refusal, when no pending statement
// would show it.
func (w *Witness) isWritable(ctx context.Context) bool {
	w.mu.Lock()
	writable := w.writeProblem == ""
	w.mu.Unlock()
	if writable {
		return true
	}
	err := w.cfg.CheckWritable(ctx)
	if ctx.Err() == nil {
		w.recordWritable(err)
	}
	return err == nil
}

// unpublished returns the holds whose statements etcd has not accepted yet, or that the view does not show in time:
// they were deleted, or expired. Writing one twice does no harm.
func (w *Witness) unpublished() (all []*held) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, l := range w.locks {
		missing := !l.inView && time.Since(l.publishedAt) >= w.pauses.viewLag
		if l.statement != nil && (missing || l.publishedAt.IsZero()) {
			all = append(all, l)
		}
	}
	return all
}

// writeStatement writes the statement about one hold, and reports whether that is done or no longer needed.
func (w *Witness) writeStatement(ctx context.Context, l *held) (done bool) {
	s := *l.statement
	err := w.cfg.RecordProof(ctx, s)
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case err == nil:
		w.writeProblem = ""
		l.publishedAt = time.Now()
		w.logStatement(l)
	case errors.Is(err, metadata.ErrChanged):
		if w.locks[s.Name] == l {
			w.dropHold(s.Name)
		}
	default:
		w.failed++
		if ctx.Err() == nil {
			w.recordProblem("cannot record that a holder is dead", err)
		}
		return false
	}
	return true
}

// logStatement logs and counts a statement that etcd has accepted. The caller holds mu.
func (w *Witness) logStatement(l *held) {
	if l.reported { // it was written again
		return
	}
	l.reported = true
	s := l.statement
	w.accepted[s.Cause]++
	event := w.cfg.Log.Info().Str("lock", s.Name).Str("uuid", s.UUID).Int64("token", s.Token).Str("cause", s.Cause)
	if s.Signal != "" {
		event = event.Str("signal", s.Signal)
	}
	if s.ExitCode != nil {
		event = event.Int("exit_code", *s.ExitCode)
	}
	event.Msg(s.Reason)
}
