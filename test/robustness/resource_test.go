package robustness

import (
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/clustermutex/unlocker/pkg/fencing"
)

// resource is what the locks protect: something outside of etcd that must not accept writes from a former holder. It
// stands behind the fence of pkg/fencing and records what the fence accepted, in order.
type resource struct {
	addr string

	mu   sync.Mutex
	in   []entry
	kept int // out
}

// entry is one accepted write.
type entry struct {
	lock, uuid string
	token      int64
	at         int64
}

func newResource(t testing.TB) *resource {
	t.Helper()
	r := &resource{}
	fence := fencing.Fence{
		Store: fencing.NewMemory(0), Resource: func(q *http.Request) string { return q.URL.Path },
		Refused: func(*http.Request, error) { r.mu.Lock(); r.kept++; r.mu.Unlock() },
	}
	server := &http.Server{Handler: fence.Handler(http.HandlerFunc(r.write))}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r.addr = "http://" + l.Addr().String()
	var wg sync.WaitGroup
	wg.Go(func() { server.Serve(l) })
	t.Cleanup(func() { server.Close(); wg.Wait() })
	return r
}

func (r *resource) write(_ http.ResponseWriter, q *http.Request) {
	uuid, err := io.ReadAll(io.LimitReader(q.Body, 100))
	if err != nil {
		return
	}
	token := fencing.FromContext(q.Context())
	r.mu.Lock()
	defer r.mu.Unlock()
	r.in = append(r.in, entry{strings.TrimPrefix(q.URL.Path, "/"), string(uuid), token, stamp()})
}

// check checks that each write was one of a hold that etcd knows, and that none came after one of a later hold.
func (r *resource) check(holds []*hold, found func(rule, format string, args ...any)) {
	known := map[holdID]*hold{}
	newest := map[string]int64{}
	for _, h := range holds {
		known[h.id()] = h
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.in {
		if h := known[holdID{e.uuid, e.token}]; h == nil || h.lock != e.lock {
			found(ruleFence, "%s wrote to %q with token %d, which is not that of a hold", e.uuid, e.lock, e.token)
		}
		if e.token < newest[e.lock] {
			found(ruleFence, "%s wrote to %q with token %d after token %d", e.uuid, e.lock, e.token, newest[e.lock])
		}
		newest[e.lock] = max(newest[e.lock], e.token)
	}
}
