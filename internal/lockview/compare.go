package lockview

import (
	"context"
	"time"
)

// comparison reads a list now and then while the watch runs, and corrects what the watch missed. Only the goroutine
// that applies the watch's events calls its methods.
type comparison struct {
	view *View
	next time.Time

	cancel context.CancelFunc // nil while no list is being read
	listed chan listing
	result *listing // read, and waiting for the watch to catch up
}

type listing struct {
	b        *builder
	revision int64
	err      error
}

// advance starts, waits for, or finishes a comparison.
func (c *comparison) advance(ctx context.Context) {
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
		c.view.opt.Log.Warn().Err(l.err).Msg("the periodic list failed")
	case l.revision > c.view.Fresh().Revision:
		return // events up to that revision have yet to arrive
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
	found := v.reconcile(b, v.touched)
	v.stats.Resyncs[ReasonPeriodic]++
	v.stats.Healed += uint64(found.differed)
	if found.differed > 0 {
		v.announce()
	}
	v.mu.Unlock()
	if found.differed > 0 {
		v.opt.Log.Error().Int("locks", found.differed).Msg("the watch missed changes of locks, which a list found")
	}
	v.report(ctx, found)
}

// stop cancels a running comparison, and waits until its list has stopped.
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
