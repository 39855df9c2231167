package mutex_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

// Waiters leave the queue before the client closes, and leave nothing behind: no warning, no ticket, no lease.
func TestCloseWhileManyWait(t *testing.T) {
	t.Parallel()
	for name, kind := range kindsThatQueue() {
		t.Run(name, func(t *testing.T) {
			lineInABubble(t, func(t *testing.T, q *line) {
				var log bytes.Buffer
				warnings := slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn})
				c := newClient(t, q.connect(t), mutex.Options{Logger: slog.New(warnings)})
				first := take(t, q.client(), "a", kind[0]...)
				const waiters = 50
				ended := make(chan error, waiters)
				for range waiters {
					go func() { _, err := c.Lock(context.Background(), "a", kind[0]...); ended <- err }()
				}
				etcdtest.Eventually(t, "the queue", func() bool { return len(q.waiting()) == waiters })
				other := q.wait(q.client(), kind[0]...)
				if err := c.Close(); err != nil {
					t.Error(err)
				}
				for range waiters {
					if err := <-ended; !errors.Is(err, mutex.ErrClosed) {
						t.Errorf("a wait ended with %v", err)
					}
				}
				if log.Len() > 0 {
					t.Errorf("Close says:\n%s", log.String())
				}
				if w := q.waiting(); len(w) != 1 || w[0].Owner != other.ticket.Owner {
					t.Errorf("waiting: %+v", w)
				}
				if _, err := c.Lock(context.Background(), "a"); !errors.Is(err, mutex.ErrClosed) {
					t.Errorf("after Close: %v", err)
				}
				unlock(t, first)
				unlock(t, q.turn(other))
			})
		})
	}
}
