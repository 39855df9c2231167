package lockview

import (
	"context"
	"time"
)

// comparison reads a list now and then while the watch goes on, and corrects what the watch did not tell. Only the
// goroutine that applies the watch's events calls its methods.
type comparison struct {
	view *View
	next time.Time

	cancel context.CancelFunc // nil when no list is being read
	listed chan listing
	result *listing // read, and waiting for the watch to get as far
}

type listing struct {
	b        *builder
	revision int64
	err      error
}

// goOn does what there is to do: start, wait, or finish a comparison.
func (c *comparison) goOn(ctx context.Context) {
	switch {
	case c.cancel == nil:
		if !time.Now().Before(c.next) {
			c.start(ctx)
		}
		return
	case c.result == nil:
		select {
		case l := <-c.listed:
			c.result = &l
		default:
			return
		}
	}
	switch l := c.result; {
	case l.err != nil:
		c.view.opt.Log.Warn().Err(l.err).Msg("the list to compare with failed")
	case l.revision > c.view.Fresh().Revision:
		return // what happened up to there has yet to arrive
	default:
		c.finish(ctx, l.b)
	}
	c.result = nil
	c.stop()
	c.next = time.Now().Add(c.view.opt.RelistEvery)
}

func (c *comparison) start(ctx context.Context) {
	c.view.mu.Lock()
	c.view.touched = newTouched()
	c.view.mu.Unlock()
	ctx, c.cancel = context.WithCancel(ctx)
	listed := make(chan listing, 1)
	c.listed = listed
	go func() {
		b, revision, err := c.view.read(ctx, true)
		listed <- listing{b, revision, err}
		close(listed)
	}()
}

func (c *comparison) finish(ctx context.Context, b *builder) {
	v := c.view
	v.mu.Lock()
	gone, differed := v.adopt(b, v.touched)
	v.stats.Resyncs[ReasonPeriodic]++
	v.stats.Healed += uint64(differed)
	if differed > 0 {
		v.announce()
	}
	v.mu.Unlock()
	if differed > 0 {
		v.opt.Log.Error().Int("locks", differed).Msg("the watch did not tell of changes of locks, a list did")
	}
	v.bury(ctx, gone)
}

// stop ends a comparison that goes on, and waits until its list is not read any more.
func (c *comparison) stop() {
	if c.cancel == nil {
		return
	}
	c.cancel()
	for range c.listed {
	}
	c.cancel = nil
	c.view.mu.Lock()
	c.view.touched = nil
	c.view.mu.Unlock()
}
