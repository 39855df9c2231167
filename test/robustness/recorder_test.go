package robustness

import (
	"context"
	"errors"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// The keys of a run: the locks, and the keys that only holders may write. What is written to fill the disk lies outside
// of both.
const (
	prefix         = "/mutexes/"
	resourcePrefix = "/resource/"
	fillPrefix     = "/zfill/"
)

// change is one change of one key.
type change struct {
	at       int64 // stamp, when the recorder heard of it: later than the commit
	revision int64
	key      string
	value    string
	deleted  bool
	created  int64 // create revision, of what was put
	lease    bool
}

// recorder writes down every change below the two prefixes, from the first revision on, whatever happens to etcd
// meanwhile. It has its own connection that no fault of the network touches.
type recorder struct {
	etcd *clientv3.Client

	mu       sync.Mutex
	changes  []change
	revision int64 // all changes up to it are there
	broken   error
}

func newRecorder(etcd *clientv3.Client) *recorder {
	return &recorder{etcd: etcd}
}

// run records until ctx ends.
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
			r.fail(errors.New("the run compacted what the recorder had not seen"))
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

func (r *recorder) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.broken = err
}

// at is the revision up to which all is recorded.
func (r *recorder) at() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.revision
}

// all is what was recorded.
func (r *recorder) all() ([]change, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]change(nil), r.changes...), r.broken
}

// catchUp waits until everything up to now is recorded.
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
