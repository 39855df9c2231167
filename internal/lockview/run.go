package lockview

import (
	"context"
	"fmt"
	"time"

	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// longLived is how long a watch must live to reset the count of consecutive failures.
const longLived = 5 * time.Second

// Run keeps the snapshot current until ctx ends, then returns nil. After any failure it waits a little and lists again.
func (v *View) Run(ctx context.Context) error {
	reason := ReasonStart
	failures := 0
	for {
		err := v.relist(ctx, reason)
		if err == nil {
			began := time.Now()
			err = v.watch(ctx)
			reason = reasonOf(err)
			if ctx.Err() == nil {
				v.restarted(reason)
			}
			if time.Since(began) >= longLived {
				failures = 0
			}
		} else {
			err = fmt.Errorf("the list failed: %w", err)
			reason = ReasonList
		}
		if ctx.Err() != nil {
			return nil
		}
		event := v.opt.Log.Debug()
		if v.noteLost(err) {
			event = v.opt.Log.Warn()
		}
		event.Err(err).Str("reason", reason).Msg("the view of the locks was interrupted")
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(backoff(failures)):
		}
		failures++
	}
}

// relist makes the snapshot match a new list.
func (v *View) relist(ctx context.Context, reason string) error {
	b, revision, err := v.list(ctx, true)
	if err != nil {
		return err
	}
	if highest := v.Fresh().Highest; revision < highest {
		v.opt.Log.Error().Int64("revision", revision).Int64("highest", highest).
			Msg("etcd was restored from an older state")
		// Equal revisions no longer mean equal keys.
		if b, revision, err = v.list(ctx, false); err != nil {
			return err
		}
	}
	v.mu.Lock()
	found := v.reconcile(b, nil)
	v.stats.Resyncs[reason]++
	v.noteHeard(revision)
	v.noteSynced()
	v.announce()
	v.mu.Unlock()
	v.report(ctx, found)
	return nil
}

// watch follows etcd from the snapshot's revision on, and compares it with a list every few minutes.
func (v *View) watch(ctx context.Context) error {
	c := comparison{view: v, next: time.Now().Add(v.opt.RelistEvery)}
	defer c.stop()
	return v.src.Watch(ctx, v.Fresh().Revision, func(revision int64, events []protocol.Event) {
		v.apply(revision, events)
		c.advance(ctx)
	})
}

// apply applies one revision.
func (v *View) apply(revision int64, events []protocol.Event) {
	v.mu.Lock()
	v.noteHeard(revision)
	v.noteSynced()
	now := v.Clock()
	steps, told := v.snap.apply(v, events, now)
	for i := range steps {
		v.stamp(&steps[i], now, true)
	}
	for _, e := range events {
		if e.Deleted {
			v.stats.Deletes++
		} else {
			v.stats.Puts++
		}
	}
	if len(events) > 0 {
		v.announce()
	}
	v.mu.Unlock()
	for _, s := range steps {
		if h := s.ended(); h != nil {
			r := &h.Record
			v.opt.Ended(r, decodeEnding(told.endings[r.HistoryID()]))
		}
		if h := s.began(); h != nil {
			if w, waited := told.left[h.UUID]; waited {
				v.opt.Taken(&h.Record, w)
			}
		}
		if s.died() {
			v.opt.Died(&s.after.rec.Record)
		}
	}
}

func decodeEnding(e *protocol.Event) *metadata.Ending {
	if e == nil {
		return nil
	}
	ending, ok := document[metadata.Ending](e.Value)
	if !ok {
		return nil
	}
	return &ending
}

func (v *View) restarted(reason string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.stats.WatchRestarts[reason]++
}
