package sweeper_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/pkg/metadata"
)

// holder is a client that extends its lock until it dies.
type holder struct {
	mu   sync.Mutex
	lost time.Time
	die  context.CancelFunc
}

// hold takes the lock and extends it every third of ttl, after failures every ten seconds. Its clock is ahead by skew.
func (s *store) hold(t *testing.T, name string, ttl, skew time.Duration) *holder {
	clock := func() time.Time { return time.Now().Round(0).Add(skew) }
	s.take(name, 0, ttl, func(r *metadata.Record) {
		r.LockedAt = clock()
		r.AlertAt = clock()
		r.AutoUnlockAt = clock().Add(ttl)
	})
	s.mu.Lock()
	token := s.locks[name].Token
	s.mu.Unlock()
	h := &holder{}
	var ctx context.Context
	ctx, h.die = context.WithCancel(t.Context())
	go func() {
		for next := ttl / 3; ; {
			select {
			case <-ctx.Done():
				return
			case <-time.After(next):
			}
			held, err := s.alive(name, token, clock(), ttl)
			switch {
			case err != nil:
				next = 10 * time.Second
			case held:
				next = ttl / 3
			default:
				h.mu.Lock()
				h.lost = time.Now()
				h.mu.Unlock()
				return
			}
		}
	}()
	t.Cleanup(h.die)
	return h
}

func (h *holder) mustHold(t *testing.T) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.lost.IsZero() {
		t.Errorf("a living holder lost its lock at %v", h.lost)
	}
}
