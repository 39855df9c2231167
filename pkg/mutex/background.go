package mutex

import (
	"context"
	"sync"
	"time"
)

// background counts what runs for a client besides the calls that return at once, so that Close can wait for it.
type background struct {
	mu      sync.Mutex
	closing bool           // nothing is taken any more
	closed  bool           // nothing is begun in the background any more
	waiting sync.WaitGroup // calls that wait for a lock
	running sync.WaitGroup // goroutines of holds and cleanups
}

// beginWait counts one more call that waits for a lock, until done, unless the client is closed.
func (b *background) beginWait() (done func(), ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closing {
		return nil, false
	}
	b.waiting.Add(1)
	return b.waiting.Done, true
}

// spawn runs f in a goroutine that Close waits for, unless the client is closed.
func (b *background) spawn(f func()) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return false
	}
	b.running.Go(f)
	return true
}

// beginClose refuses new waits, and reports whether this call is the first.
func (b *background) beginClose() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	first := !b.closing
	b.closing = true
	return first
}

// isClosed reports whether Close has begun.
func (b *background) isClosed() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.closing
}

// endWaits waits for the calls that wait for a lock, or until ctx ends. After that nothing is begun any more.
func (b *background) endWaits(ctx context.Context) {
	awaitAll(ctx, &b.waiting)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
}

// rest waits for the goroutines, but not forever: a hook there may have called Close.
func (b *background) rest(most time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), most)
	defer cancel()
	awaitAll(ctx, &b.running)
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
