package lockstore

import (
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// backlog is a queue, limited in bytes, between the watch, which must never wait, and its consumer.
type backlog struct {
	limit int
	ready chan struct{} // holds a token while there is something to take

	mu    sync.Mutex
	queue []clientv3.WatchResponse
	bytes int
}

func newBacklog(limit int) *backlog { return &backlog{limit: limit, ready: make(chan struct{}, 1)} }

// add adds resp. It reports false, and adds nothing, if the limit is reached.
func (b *backlog) add(resp clientv3.WatchResponse) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.bytes >= b.limit { // a single answer may be larger than the limit
		return false
	}
	b.queue = append(b.queue, resp)
	b.bytes += size(resp)
	notify(b.ready)
	return true
}

// take returns all that is queued.
func (b *backlog) take() []clientv3.WatchResponse {
	b.mu.Lock()
	defer b.mu.Unlock()
	queue := b.queue
	b.queue = nil
	b.bytes = 0
	return queue
}

// size returns about how much memory an answer takes, in bytes.
func size(resp clientv3.WatchResponse) int {
	const structs = 300
	n := structs
	for _, e := range resp.Events {
		n += structs + len(e.Kv.Key) + len(e.Kv.Value)
	}
	return n
}

// lastTime is when something last happened. It is safe for concurrent use.
type lastTime struct{ at atomic.Pointer[time.Time] }

func (l *lastTime) Store(t time.Time) { l.at.Store(&t) }
func (l *lastTime) Load() time.Time   { return *l.at.Load() }
