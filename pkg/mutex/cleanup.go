package mutex

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/clustermutex/unlocker/internal/etcdretry"
)

const (
	// maxCleanups bounds memory through long outages of etcd. The oldest are given up: their records are auto-unlocked.
	maxCleanups    = 10_000
	cleanupTimeout = 10 * time.Second // of one round of one cleanup

	// maxCleaners bounds how many are done at a time: many waiters may give up at once, at an etcd that is slow.
	maxCleaners = 8
)

// cleanups are requests that no caller waits for. They are repeated in the background until etcd's answer is definite,
// a few at a time, but those of one attempt one after the other. There are goroutines only while there is something to
// do.
type cleanups struct {
	logger
	background *background
	ctx        context.Context // ends when the client is closed

	mu       sync.Mutex
	list     []cleanup
	cleaners int             // goroutines
	busy     map[string]bool // the attempts whose cleanups are under way
	idle     chan struct{}   // closed when the last goroutine ends; nil when there is none
}

type cleanup struct {
	lock, uuid string                      // of the attempt
	until      time.Time                   // then it is given up
	do         func(context.Context) error // nil when the outcome is definite
}

// later adds a cleanup.
func (w *cleanups) later(do cleanup) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.list) >= maxCleanups {
		w.giveUp(w.list[0], errors.New("too many requests without an answer"))
		w.list = w.list[1:]
	}
	w.list = append(w.list, do)
	if w.cleaners == maxCleaners || w.busy[do.uuid] {
		return
	}
	if !w.background.spawn(w.work) {
		if w.cleaners == 0 {
			w.giveUp(do, ErrClosed)
			w.list = nil
		}
		return
	}
	w.cleaners++
	if w.idle == nil {
		w.idle = make(chan struct{})
	}
}

func (w *cleanups) work() {
	do, ok := w.next("")
	for failed := 0; ok; do, ok = w.next(do.uuid) {
		ctx, cancel := context.WithTimeout(w.ctx, cleanupTimeout)
		err := do.do(ctx)
		cancel()
		switch {
		case err == nil:
			w.log(slog.LevelDebug, "cleaned up", slog.String("lock", do.lock), slog.String("uuid", do.uuid))
			failed = 0
		case time.Now().After(do.until):
			w.giveUp(do, err)
		default:
			w.again(do)
			etcdretry.Pause(w.ctx, etcdretry.Delay(failed))
			failed++
		}
	}
}

func (w *cleanups) giveUp(do cleanup, err error) {
	w.log(slog.LevelWarn, "not cleaned up: what is left is auto-unlocked in its time",
		slog.String("lock", do.lock), slog.String("uuid", do.uuid), slog.Any("error", err))
}

// next takes the oldest cleanup of an attempt that has none under way, or ends the goroutine. The goroutine's cleanup
// of the attempt done is over.
func (w *cleanups) next(done string) (cleanup, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.busy, done)
	i := slices.IndexFunc(w.list, func(c cleanup) bool { return !w.busy[c.uuid] })
	if i < 0 || w.ctx.Err() != nil {
		if w.cleaners--; w.cleaners == 0 {
			close(w.idle)
			w.idle = nil
		}
		return cleanup{}, false
	}
	do := w.list[i]
	copy(w.list[1:i+1], w.list[:i])
	w.list = w.list[1:]
	if w.busy == nil {
		w.busy = map[string]bool{}
	}
	w.busy[do.uuid] = true
	return do, true
}

// again puts a cleanup back behind the others, so that one that fails does not keep them waiting.
func (w *cleanups) again(do cleanup) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.list = append(w.list, do)
}

// drain waits until all is done or ctx ends, and returns how many cleanups are left.
func (w *cleanups) drain(ctx context.Context) int {
	w.mu.Lock()
	idle := w.idle
	w.mu.Unlock()
	if idle == nil {
		return 0
	}
	select {
	case <-idle:
		return 0
	case <-ctx.Done():
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.list) + len(w.busy)
}
