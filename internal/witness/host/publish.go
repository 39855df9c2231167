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
	publishers = 8 // statements in flight at the same time
	lastRetry  = 30 * time.Second
)

// publishAll sends all statements, until etcd has them or their holds are over.
func (w *Witness) publishAll(ctx context.Context) {
	again := w.pauses.retry
	for {
		var later <-chan time.Time
		if w.stateAll(ctx) && w.mayStateAgain(ctx) {
			again = w.pauses.retry
		} else {
			later = time.After(again)
			again = min(2*again, lastRetry)
		}
		select {
		case <-ctx.Done():
			return
		case <-w.publish:
		case <-later:
		}
	}
}

// stateAll states everything once, and reports whether nothing is left to do.
func (w *Witness) stateAll(ctx context.Context) (done bool) {
	var all sync.WaitGroup
	free := make(chan struct{}, publishers)
	var failed atomic.Bool
	for _, l := range w.unpublished() {
		free <- struct{}{}
		if failed.Load() { // the others would wait for etcd, too
			break
		}
		all.Go(func() {
			if !w.state(ctx, l) {
				failed.Store(true)
			}
			<-free
		})
	}
	all.Wait()
	return len(w.unpublished()) == 0
}

// mayStateAgain checks whether statements are possible again, if the last result was that they are not and no statement
// is left that would show it.
func (w *Witness) mayStateAgain(ctx context.Context) bool {
	w.mu.Lock()
	able := w.mute == ""
	w.mu.Unlock()
	if able {
		return true
	}
	err := w.cfg.Prove(ctx)
	if ctx.Err() == nil {
		w.mayState(err)
	}
	return err == nil
}

// unpublished returns the holds whose holders have ended without a statement in etcd.
func (w *Witness) unpublished() (all []*held) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, l := range w.locks {
		if l.statement != nil && !l.published {
			all = append(all, l)
		}
	}
	return all
}

// state states the end of one holder, and reports whether that is done.
func (w *Witness) state(ctx context.Context, l *held) (done bool) {
	s := *l.statement
	err := w.cfg.State(ctx, s)
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case err == nil:
		w.mute = ""
		l.published = true
		l.at = time.Now()
		w.report(l)
	case errors.Is(err, metadata.ErrChanged):
		if w.locks[s.Lock] == l {
			w.gone(s.Lock)
		}
	default:
		w.counts.failed++
		if ctx.Err() == nil {
			w.fails(&w.mute, "an end cannot be stated", err)
		}
		return false
	}
	return true
}

// report logs and counts a statement that etcd has. The caller holds mu.
func (w *Witness) report(l *held) {
	if l.reported { // stated again
		return
	}
	l.reported = true
	s := l.statement
	w.counts.stated[s.Cause]++
	event := w.cfg.Log.Info().Str("lock", s.Lock).Str("uuid", s.UUID).Int64("token", s.Token).Str("cause", s.Cause)
	if s.Signal != "" {
		event = event.Str("signal", s.Signal)
	}
	if s.ExitCode != nil {
		event = event.Int("exit_code", *s.ExitCode)
	}
	event.Msg(s.How)
}

// missing marks published statements that the view does not show in time as unpublished: they were gone before the view
// could show them. Stating them again does no harm.
func (w *Witness) missing() {
	if _, cause := w.cfg.Fresh(); cause != "" {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, l := range w.locks {
		if l.published && !l.shown && time.Since(l.at) >= w.pauses.echo {
			l.published = false
			wake(w.publish)
		}
	}
}
