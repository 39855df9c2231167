package mutex

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/clustermutex/unlocker/internal/etcdretry"
)

const (
	// maxCleanups bounds memory through long outages of etcd. The oldest are given up: their records are auto-unlocked.
	maxCleanups    = 10_000
	cleanupTimeout = 10 * time.Second // of one round of one cleanup
)

// cleanups are requests that no caller waits for. They are repeated in the background, one after the other, until
// etcd's answer is definite. There is a goroutine only while there is something to do.
type cleanups struct {
	logger
	background *background
	ctx        context.Context // ends when the client is closed

	mu   sync.Mutex
	list []cleanup
	idle chan struct{} // closed when the goroutine ends; nil when there is none
}

type cleanup struct {
	lock, uuid string
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
	if w.idle != nil {
		return
	}
	idle := make(chan struct{})
	if !w.background.spawn(func() { defer close(idle); w.work() }) {
		w.giveUp(do, ErrClosed)
		w.list = nil
		return
	}
	w.idle = idle
}

func (w *cleanups) work() {
	for failed := 0; ; {
		do, ok := w.next()
		if !ok {
			return
		}
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
		if w.ctx.Err() != nil {
			return
		}
	}
}

func (w *cleanups) giveUp(do cleanup, err error) {
	w.log(slog.LevelWarn, "not cleaned up: what is left is auto-unlocked in its time",
		slog.String("lock", do.lock), slog.String("uuid", do.uuid), slog.Any("error", err))
}

// next takes the oldest cleanup, or ends the goroutine.
func (w *cleanups) next() (cleanup, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.list) == 0 {
		w.idle = nil
		return cleanup{}, false
	}
	do := w.list[0]
	w.list = w.list[1:]
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
	return len(w.list) + 1 // and the one in work
}
