package etcdmemory

import (
	"context"
	"reflect"
	"sync"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// watcher implements clientv3.Watcher. That of clientv3 waits on a channel outside the bubble.
type watcher struct{ *background }

var _ clientv3.Watcher = watcher{}

// Watch returns once the watch is open, as etcd's client does.
func (w watcher) Watch(ctx context.Context, key string, opts ...clientv3.OpOption) clientv3.WatchChan {
	out := make(chan clientv3.WatchResponse)
	ctx, cancel := context.WithCancel(ctx)
	detach := context.AfterFunc(w.ctx, cancel)
	if !w.link.wait(ctx) {
		cancel()
		close(out)
		return out
	}
	st := newStream(clientv3.OpWatch(key, opts...))
	st.deaf = w.link.Deaf
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

// pump sends what the stream gets while the link is up, until ctx ends.
func (w watcher) pump(ctx context.Context, st *stream, out chan<- clientv3.WatchResponse) {
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

// wait waits until the link is up. It reports false if ctx ended first.
func (l *Link) wait(ctx context.Context) bool {
	select {
	case <-l.up():
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// RequestProgress does nothing else: a client gets every event at once.
func (w watcher) RequestProgress(ctx context.Context) error { return w.link.pass(ctx) }

// stream is one watch.
type stream struct {
	from, end                          []byte
	start                              int64
	created, prevKV, noPuts, noDeletes bool

	deaf func() bool // or nil

	mu    sync.Mutex
	queue []clientv3.WatchResponse
	news  chan struct{} // has a token if something was queued
}

// newStream reads the options of a watch. clientv3 does not export some of them, hence the reflection.
func newStream(op clientv3.Op) *stream {
	v := reflect.ValueOf(op)
	is := func(option string) bool { return v.FieldByName(option).Bool() }
	return &stream{
		from: op.KeyBytes(), end: op.RangeBytes(), start: op.Rev(),
		created: is("createdNotify"), prevKV: is("prevKV"), noPuts: is("filterPut"), noDeletes: is("filterDelete"),
		news: make(chan struct{}, 1),
	}
}

// open begins a watch, with the events since the revision that it asks for.
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
		st.deliver(events[:n])
		events = events[n:]
	}
}

func (s *Server) close(st *stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.streams, st)
}

// deliver queues those events of one transaction that the watch asked for.
func (st *stream) deliver(events []*mvccpb.Event) {
	if st.deaf != nil && st.deaf() {
		return
	}
	var wanted []*clientv3.Event
	for _, e := range events {
		if st.wants(e) {
			event := &mvccpb.Event{Type: e.Type, Kv: e.Kv}
			if st.prevKV {
				event.PrevKv = e.PrevKv
			}
			wanted = append(wanted, event)
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
