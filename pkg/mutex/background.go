package mutex

import (
	"context"
	"log/slog"
	"sync"
)

// rest waits for what runs in the background, but not for ever: a hook there may have called Close.
func (c *Client) rest() {
	ctx, cancel := context.WithTimeout(context.Background(), c.opts.RequestTimeout)
	defer cancel()
	awaitAll(ctx, &c.wg)
}

// awaitAll waits until all have ended, or ctx has.
func awaitAll(ctx context.Context, all *sync.WaitGroup) {
	ended := make(chan struct{})
	go func() { all.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-ctx.Done():
	}
}

// beginWait counts one more call that waits for a lock, until done, unless the client is closed.
func (c *Client) beginWait() (done func(), ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closing {
		return nil, false
	}
	c.waiting.Add(1)
	return c.waiting.Done, true
}

// spawn runs f in a goroutine that Close waits for, unless the client is closed.
func (c *Client) spawn(f func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.wg.Go(f)
	return true
}

// isClosed reports whether Close has begun.
func (c *Client) isClosed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closing
}

// log logs what no caller can be told. Attributes are strings, numbers, durations and errors.
func (c *Client) log(level slog.Level, message string, attributes ...slog.Attr) {
	if c.opts.Logger != nil {
		c.opts.Logger.LogAttrs(context.Background(), level, message, attributes...)
	}
}
