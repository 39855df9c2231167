package robustness

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/testkit/proctest"
	"github.com/clustermutex/unlocker/pkg/fencing"
)

// The keys of a run: the locks, and the keys that only holders may write. What is written to fill the disk lies outside
// of both.
const (
	prefix         = "/mutexes/"
	resourcePrefix = "/resource/"
	fillPrefix     = "/zfill/"
)

type change struct {
	at       int64 // stamp, when the recorder heard of it: later than the commit
	revision int64
	key      string
	value    string
	deleted  bool
	created  int64 // create revision, of what was put
	lease    bool
}

// recorder records every change below the two prefixes from the first revision on, whatever happens to etcd. Its own
// connection is exempt from network faults.
type recorder struct {
	etcd *clientv3.Client

	mu       sync.Mutex
	changes  []change
	revision int64 // all changes up to it are there
	broken   error
}

func (r *recorder) run(ctx context.Context) {
	for ctx.Err() == nil {
		r.watch(ctx)
		sleep(ctx, 50*time.Millisecond)
	}
}

func (r *recorder) watch(ctx context.Context) {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	go func() { // a watch says nothing of how far it is while nothing changes
		for ctx.Err() == nil {
			_ = r.etcd.RequestProgress(ctx)
			sleep(ctx, 200*time.Millisecond)
		}
	}()
	for resp := range r.etcd.Watch(ctx, prefix, clientv3.WithRange(clientv3.GetPrefixRangeEnd(resourcePrefix)),
		clientv3.WithRev(r.at()+1)) {
		if resp.CompactRevision != 0 {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.broken = errors.New("the run compacted what the recorder had not seen")
			return
		}
		if resp.Err() != nil {
			return
		}
		r.add(resp)
	}
}

func (r *recorder) add(resp clientv3.WatchResponse) {
	now := stamp()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range resp.Events {
		r.changes = append(r.changes, change{
			at: now, revision: e.Kv.ModRevision, key: string(e.Kv.Key), value: string(e.Kv.Value),
			deleted: e.Type == clientv3.EventTypeDelete,
			created: e.Kv.CreateRevision, lease: e.Kv.Lease != 0,
		})
	}
	if n := len(resp.Events); n > 0 {
		r.revision = max(r.revision, resp.Events[n-1].Kv.ModRevision)
	} else if resp.IsProgressNotify() {
		r.revision = max(r.revision, resp.Header.Revision)
	}
}

func (r *recorder) at() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.revision
}

func (r *recorder) all() ([]change, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]change(nil), r.changes...), r.broken
}

func (r *recorder) catchUp(ctx context.Context) error {
	for {
		try, cancel := context.WithTimeout(ctx, 2*time.Second)
		now, err := r.etcd.Get(try, prefix)
		cancel()
		for err == nil && ctx.Err() == nil {
			if r.at() >= now.Header.Revision {
				return nil
			}
			sleep(ctx, 20*time.Millisecond)
		}
		if ctx.Err() != nil {
			return errors.New("the recorder does not catch up")
		}
		sleep(ctx, 50*time.Millisecond)
	}
}

// resource is what the locks protect: something outside of etcd that must not accept writes from a former holder. It
// stands behind the fence of pkg/fencing and records what the fence accepted, in order.
type resource struct {
	addr string

	mu   sync.Mutex
	in   []admitted
	kept int // out
}

type admitted struct {
	lock, uuid string
	token      int64
	at         int64
}

func newResource(t testing.TB) *resource {
	r := &resource{}
	fence := fencing.Fence{
		Store: fencing.NewMemory(0), Resource: func(q *http.Request) string { return q.URL.Path },
		OnRefused: func(*http.Request, error) { r.mu.Lock(); r.kept++; r.mu.Unlock() },
	}
	server := &http.Server{Handler: fence.Handler(http.HandlerFunc(r.write))}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	proctest.Must(t, err)
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
	r.in = append(r.in, admitted{strings.TrimPrefix(q.URL.Path, "/"), string(uuid), token, stamp()})
}

// fence checks that each write belongs to a hold in etcd's history, and that none came after one of a later hold.
func (j *judgement) fence() {
	newest := map[string]int64{}
	j.resource.mu.Lock()
	defer j.resource.mu.Unlock()
	j.stage.counts["writes that the fence let in"] = len(j.resource.in)
	j.stage.counts["writes that the fence kept out"] = j.resource.kept
	for _, e := range j.resource.in {
		if h := j.known[holdID{e.uuid, e.token}]; h == nil || h.lock != e.lock {
			j.found(ruleFence, "%s wrote to %q with token %d, which is not that of a hold", e.uuid, e.lock, e.token)
		}
		if e.token < newest[e.lock] {
			j.found(ruleFence, "%s wrote to %q with token %d after token %d", e.uuid, e.lock, e.token, newest[e.lock])
		}
		newest[e.lock] = max(newest[e.lock], e.token)
	}
}
