package etcdmemory

import (
	"context"
	"reflect"
	"sync"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// watcher is the part of etcd's client that is about watches. That of clientv3 waits on a channel that belongs to no
// bubble.
type watcher struct {
	link *Link
	ctx  context.Context // ends with Close
	stop context.CancelFunc
	wg   sync.WaitGroup
}

var _ clientv3.Watcher = (*watcher)(nil)

func newWatcher(l *Link) *watcher {
	w := &watcher{link: l}
	w.ctx, w.stop = context.WithCancel(context.Background())
	return w
}

// Watch returns when the watch is open, as etcd's client does.
func (w *watcher) Watch(ctx context.Context, key string, opts ...clientv3.OpOption) clientv3.WatchChan {
	out := make(chan clientv3.WatchResponse)
	ctx, cancel := context.WithCancel(ctx)
	detach := context.AfterFunc(w.ctx, cancel)
	if !w.link.wait(ctx) {
		cancel()
		close(out)
		return out
	}
	st := newStream(clientv3.OpWatch(key, opts...))
	s := w.link.server
	s.open(st)
	w.wg.Go(func() {
		defer cancel()
		defer detach()
		defer close(out)
		defer s.close(st)
		w.pump(ctx, st, out)
	})
	return out
}

// pump sends what the stream gets while the link is whole, until ctx ends.
func (w *watcher) pump(ctx context.Context, st *stream, out chan<- clientv3.WatchResponse) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-st.news:
		}
		for _, r := range st.take() {
			if !w.link.wait(ctx) {
				return
			}
			select {
			case out <- r:
			case <-ctx.Done():
				return
			}
		}
	}
}

// wait waits until the link is whole, and tells whether ctx let it.
func (l *Link) wait(ctx context.Context) bool {
	select {
	case <-l.up():
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// RequestProgress is not needed by a client that hears everything at once.
func (w *watcher) RequestProgress(ctx context.Context) error { return w.link.pass(ctx) }

// Close ends all watches.
func (w *watcher) Close() error {
	w.stop()
	w.wg.Wait()
	return nil
}

// stream is one watch.
type stream struct {
	from, end                          []byte
	start                              int64
	created, prevKV, noPuts, noDeletes bool

	mu    sync.Mutex
	queue []clientv3.WatchResponse
	news  chan struct{} // has one when something was queued
}

// newStream reads the options of a watch, some of which clientv3 tells nobody.
func newStream(op clientv3.Op) *stream {
	v := reflect.ValueOf(op)
	is := func(option string) bool { return v.FieldByName(option).Bool() }
	return &stream{
		from: op.KeyBytes(), end: op.RangeBytes(), start: op.Rev(),
		created: is("createdNotify"), prevKV: is("prevKV"), noPuts: is("filterPut"), noDeletes: is("filterDelete"),
		news: make(chan struct{}, 1),
	}
}

// open begins a watch, with what happened since the revision that it asks for.
func (s *Server) open(st *stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.streams[st] = true
	if st.created {
		st.push(clientv3.WatchResponse{Header: s.header(), Created: true})
	}
	if st.start == 0 {
		return
	}
	for events := s.history; len(events) > 0; {
		n := 0
		for n < len(events) && events[n].Kv.ModRevision == events[0].Kv.ModRevision {
			n++
		}
		st.tell(events[:n])
		events = events[n:]
	}
}

func (s *Server) close(st *stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.streams, st)
}

// tell queues what the watch wants of the changes that one transaction made.
func (st *stream) tell(events []*mvccpb.Event) {
	var wanted []*clientv3.Event
	for _, e := range events {
		if st.wants(e) {
			told := &mvccpb.Event{Type: e.Type, Kv: e.Kv}
			if st.prevKV {
				told.PrevKv = e.PrevKv
			}
			wanted = append(wanted, told)
		}
	}
	if len(wanted) > 0 {
		st.push(clientv3.WatchResponse{Header: &pb.ResponseHeader{Revision: wanted[0].Kv.ModRevision}, Events: wanted})
	}
}

func (st *stream) wants(e *mvccpb.Event) bool {
	unwanted := st.noPuts
	if e.Type == mvccpb.Event_DELETE {
		unwanted = st.noDeletes
	}
	return !unwanted && e.Kv.ModRevision >= st.start && inRange(string(e.Kv.Key), st.from, st.end)
}

func (st *stream) push(r clientv3.WatchResponse) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.queue = append(st.queue, r)
	select {
	case st.news <- struct{}{}:
	default:
	}
}

func (st *stream) take() []clientv3.WatchResponse {
	st.mu.Lock()
	defer st.mu.Unlock()
	all := st.queue
	st.queue = nil
	return all
}
