package lockview

import (
	"context"
	"fmt"
	"time"

	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// longLived is how long a watch has to live for its end to count as a failure on its own, not as one more in a row.
const longLived = 5 * time.Second

// Run keeps the picture until ctx ends, and then returns nil: whatever goes wrong, it waits a little and lists again.
func (v *View) Run(ctx context.Context) error {
	reason := ReasonStart
	failures := 0
	for {
		err := v.list(ctx, reason)
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
			err, reason = fmt.Errorf("the list failed: %w", err), ReasonList
		}
		if ctx.Err() != nil {
			return nil
		}
		event := v.opt.Log.Debug()
		if v.lose(err) {
			event = v.opt.Log.Warn()
		}
		event.Err(err).Str("reason", reason).Msg("the view of the locks is interrupted")
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(backoff(failures)):
		}
		failures++
	}
}

// list replaces the picture by a new list.
func (v *View) list(ctx context.Context, reason string) error {
	b, revision, err := v.read(ctx, true)
	if err != nil {
		return err
	}
	if highest := v.Fresh().Highest; revision < highest {
		v.opt.Log.Error().Int64("revision", revision).Int64("highest",
			highest).Msg("etcd was restored from an older state")
		// Revisions that are equal do not mean that keys are equal any more.
		if b, revision, err = v.read(ctx, false); err != nil {
			return err
		}
	}
	v.mu.Lock()
	gone, _ := v.adopt(b, nil)
	v.stats.Resyncs[reason]++
	v.hear(revision)
	v.sync()
	v.announce()
	v.mu.Unlock()
	v.bury(ctx, gone)
	return nil
}

// watch follows etcd from the revision of the picture on, comparing with a list now and then.
func (v *View) watch(ctx context.Context) error {
	c := comparison{view: v, next: time.Now().Add(v.opt.RelistEvery)}
	defer c.stop()
	return v.src.Watch(ctx, v.Fresh().Revision, func(revision int64, events []protocol.Event) {
		v.apply(revision, events)
		c.goOn(ctx)
	})
}

// apply applies one revision.
func (v *View) apply(revision int64, events []protocol.Event) {
	v.mu.Lock()
	v.hear(revision)
	v.sync()
	now := v.Clock()
	steps, endings := v.pic.apply(events, time.Now(), now, v.touch)
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
		if r := s.ended(); r != nil {
			v.opt.Ended(r, decodeEnding(endings[r.HistoryID()]))
		}
	}
}

// ended returns the hold that ended in this step, or nil.
func (s *step) ended() *metadata.Record {
	if s.before.rec == nil || s.before.rec.Token == 0 || s.after.rec != nil && !s.replaced() {
		return nil
	}
	return s.before.rec
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

// bury tells that holds ended that a list did not find any more. How they ended stands in etcd, if anywhere; with many
// of them nobody waits for all the answers.
func (v *View) bury(ctx context.Context, gone []*metadata.Record) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	for _, r := range gone {
		var ending *metadata.Ending
		if v.src.Ending != nil && ctx.Err() == nil {
			ending, _ = v.src.Ending(ctx, r.HistoryID())
		}
		v.opt.Ended(r, ending)
	}
}

func (v *View) restarted(reason string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.stats.WatchRestarts[reason]++
}
