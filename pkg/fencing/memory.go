package fencing

import (
	"context"
	"fmt"
	"sync"
)

// DefaultResources is the default limit of a [Memory].
const DefaultResources = 100_000

// Memory is a [Store] in the memory of this process. It is safe for concurrent use. Know its limits:
//
//   - It forgets when the process ends. After a restart the first token of a resource gets in, whichever it is.
//   - Each process has its own. Behind a load balancer, each replica knows only what it has seen.
//   - It never forgets a resource while it runs, because that would open the fence: a new resource beyond its limit is
//     refused.
//   - It orders writes, but cannot stop one that hangs. While a handler does not return, newer tokens wait, and are
//     refused when their time is up.
//
// So it suits a single process whose data, in memory or in its own files, lasts only as long as the process. If the
// data is in a database, keep the token in the same row: see [Exec].
type Memory struct {
	limit int

	mu        sync.Mutex
	resources map[string]*fenced
}

// fenced is what a Memory knows of a resource.
type fenced struct {
	newest int64         // greatest token that came in or waits
	inside int64         // token of the admitted writes
	writes int           // how many are admitted
	empty  chan struct{} // closed when the last of them leaves
}

// NewMemory returns a store of at most limit resources, [DefaultResources] if limit is 0 or less. An entry takes about
// 200 bytes plus its name.
func NewMemory(limit int) *Memory {
	if limit <= 0 {
		limit = DefaultResources
	}
	return &Memory{limit: limit, resources: map[string]*fenced{}}
}

// Enter admits a write, see [Store].
func (m *Memory) Enter(ctx context.Context, resource string, token int64) (leave func(), err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f := m.resources[resource]
	if f == nil {
		if len(m.resources) >= m.limit {
			return nil, fmt.Errorf("fence %q: %w", resource, ErrFull)
		}
		f = &fenced{}
		m.resources[resource] = f
	}
	for {
		if token < f.newest {
			return nil, &StaleError{Resource: resource, Token: token, Newest: f.newest}
		}
		// from now on older tokens are refused, even if this one gives up waiting
		f.newest = token
		if f.writes == 0 || f.inside == token {
			return m.admit(f, token), nil
		}
		if err := m.wait(ctx, f.empty); err != nil {
			return nil, fmt.Errorf("fence %q: wait until the write with token %d is over: %w", resource, f.inside, err)
		}
	}
}

// admit lets a write in. The caller holds mu.
func (m *Memory) admit(f *fenced, token int64) (leave func()) {
	if f.writes == 0 {
		f.empty = make(chan struct{})
	}
	f.inside = token
	f.writes++
	return sync.OnceFunc(func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if f.writes--; f.writes == 0 {
			close(f.empty)
		}
	})
}

// wait waits until empty is closed or ctx ends. The caller holds mu, which wait releases meanwhile.
func (m *Memory) wait(ctx context.Context, empty <-chan struct{}) error {
	m.mu.Unlock()
	defer m.mu.Lock()
	select {
	case <-empty:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
