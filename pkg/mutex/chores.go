package mutex

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/clustermutex/unlocker/internal/locktxn"
	"github.com/clustermutex/unlocker/internal/protocol"
)

const (
	// releaseLife is how long etcd remembers a release with the caller's own writes, whose client repeats it for its
	// request timeout.
	releaseLife = 10 * time.Minute

	// when etcd is away for long, the oldest are given up: their records are auto-unlocked
	maxChores    = 10_000
	choreTimeout = 10 * time.Second // of one round of one chore
)

// chores are requests whose callers did not wait for their outcome: the client repeats them in the background, one
// after the other, until etcd's answer is definite. There is a goroutine only while there is something to do.
type chores struct {
	mu   sync.Mutex
	list []chore
	idle chan struct{} // closed when the goroutine ends; nil when there is none
}

type chore struct {
	lock, uuid string
	until      time.Time                   // then it is given up
	do         func(context.Context) error // nil when the outcome is definite
}

// later adds a chore.
func (c *Client) later(do chore) {
	w := &c.chores
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.list) >= maxChores {
		c.giveUp(w.list[0], errors.New("too many requests without an answer"))
		w.list = w.list[1:]
	}
	w.list = append(w.list, do)
	if w.idle != nil {
		return
	}
	idle := make(chan struct{})
	if !c.spawn(func() { defer close(idle); c.work() }) {
		c.giveUp(do, ErrClosed)
		w.list = nil
		return
	}
	w.idle = idle
}

func (c *Client) work() {
	for failed := 0; ; {
		do, ok := c.chores.next()
		if !ok {
			return
		}
		ctx, cancel := context.WithTimeout(c.ctx, choreTimeout)
		err := do.do(ctx)
		cancel()
		switch {
		case err == nil:
			c.line(slog.LevelDebug, "cleaned up", slog.String("lock", do.lock), slog.String("uuid", do.uuid))
			failed = 0
		case time.Now().After(do.until):
			c.giveUp(do, err)
		default:
			c.chores.again(do)
			pause(c.ctx, delay(failed))
			failed++
		}
		if c.ctx.Err() != nil {
			return
		}
	}
}

func (c *Client) giveUp(do chore, err error) {
	c.line(slog.LevelWarn, "not cleaned up: what is left is auto-unlocked in its time",
		slog.String("lock", do.lock), slog.String("uuid", do.uuid), slog.Any("error", err))
}

// next takes the oldest chore, or ends the goroutine.
func (w *chores) next() (chore, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.list) == 0 {
		w.idle = nil
		return chore{}, false
	}
	do := w.list[0]
	w.list = w.list[1:]
	return do, true
}

// again puts a chore back behind the others, so that one that fails does not keep them waiting.
func (w *chores) again(do chore) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.list = append(w.list, do)
}

// drain waits until all is done or ctx ends and tells how many chores are left.
func (w *chores) drain(ctx context.Context) int {
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

// cancelLater ends an acquisition whose outcome is unknown: when it is done, nothing is held by this uuid and nothing
// will be, and it stands in no queue.
func (c *Client) cancelLater(lock, uuid string) {
	c.later(chore{lock: lock, uuid: uuid, until: time.Now().Add(protocol.CancelledTTL),
		do: func(ctx context.Context) error {
			lease, err := c.markLease(ctx, &c.marks)
			if err == nil {
				_, err = c.send(ctx, locktxn.CancelQueued(c.layout, lock, uuid, lease))
			}
			if locktxn.LeaseGone(err) {
				c.marks.forget(lease)
			}
			if locktxn.NoSpace(err) {
				// No mark can be written. What was acquired with the last space is at least given back.
				_, _ = c.send(ctx, locktxn.WithdrawQueued(c.layout, lock, uuid))
			}
			return err
		}})
}
