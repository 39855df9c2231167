package mutexmetrics

import (
	"sync"

	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// groups finds the series of a lock's group, and creates them while there are fewer than most.
type groups struct {
	of   func(lock string) string
	most int
	make func(group string) *series

	mu    sync.RWMutex
	known map[string]*series
}

// series returns the series for a lock. A share is in the group of the whole lock.
func (g *groups) series(name string) *series {
	if lock, _, isShare := metadata.ParseShare(name); isShare {
		name = lock
	}
	group := text.Label(g.of(name))
	g.mu.RLock()
	s := g.known[group]
	g.mu.RUnlock()
	if s != nil {
		return s
	}
	return g.add(group)
}

func (g *groups) add(group string) *series {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.known) >= g.most && g.known[group] == nil {
		group = Other
	}
	s := g.known[group]
	if s == nil {
		s = g.make(group)
		g.known[group] = s
	}
	return s
}
