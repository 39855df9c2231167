package mutex_test

import (
	"bytes"
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/locktxn"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// fake is an etcd in memory for tests of time in a synctest bubble, where sockets do not work. Compares are as exact as
// etcd's: a missing key has revisions of 0 and compares false with every value.
type fake struct {
	clientv3.Watcher // what is not written here is not called
	clientv3.Lease

	mu       sync.Mutex
	revision int64
	keys     map[string]*mvccpb.KeyValue
	watches  map[chan clientv3.WatchResponse]clientv3.Op // what they read

	away        bool          // requests do not arrive
	deaf        bool          // watches are silent
	loseAnswers int           // so many of the next transactions are committed, but not answered
	latency     time.Duration // of every transaction
	sent        []time.Time   // transactions, as clients sent them
	kept        atomic.Int64  // leases
}

func newFake() *fake {
	return &fake{keys: map[string]*mvccpb.KeyValue{}, watches: map[chan clientv3.WatchResponse]clientv3.Op{}}
}

// client is an etcd client of f.
func (f *fake) client() *clientv3.Client {
	c := clientv3.NewCtxClient(context.Background())
	c.KV = &txns{commit: f.commit}
	c.Watcher = f
	c.Lease = f
	return c
}

func (f *fake) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

func (f *fake) commit(ctx context.Context, t *heldTxn) (*clientv3.TxnResponse, error) {
	f.mu.Lock()
	f.sent = append(f.sent, time.Now())
	away, latency := f.away, f.latency
	f.mu.Unlock()
	if away {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	time.Sleep(latency)
	f.mu.Lock()
	r := f.apply(t)
	lost := f.loseAnswers > 0
	if lost {
		f.loseAnswers--
	}
	f.mu.Unlock()
	if lost {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return r, nil
}

func (f *fake) apply(t *heldTxn) *clientv3.TxnResponse {
	f.revision++
	var events []*clientv3.Event
	r := f.run(t.cmps, t.thenOps, t.elseOps, &events)
	if len(events) == 0 {
		f.revision--
	}
	r.Header = &pb.ResponseHeader{Revision: f.revision}
	f.tell(events)
	return (*clientv3.TxnResponse)(r)
}

func (f *fake) run(cmps []clientv3.Cmp, thenOps, elseOps []clientv3.Op, events *[]*clientv3.Event) *pb.TxnResponse {
	r := &pb.TxnResponse{Succeeded: !slices.ContainsFunc(cmps, func(c clientv3.Cmp) bool { return !f.holds(c) })}
	ops := elseOps
	if r.Succeeded {
		ops = thenOps
	}
	for _, op := range ops {
		r.Responses = append(r.Responses, f.do(op, events))
	}
	return r
}

func (f *fake) holds(cmp clientv3.Cmp) bool {
	c := cmp.GetCompare()
	for _, key := range f.inRange(c.Key, c.RangeEnd) {
		if !holdsFor(c, f.keys[key]) {
			return false
		}
	}
	return len(c.RangeEnd) > 0 || f.keys[string(c.Key)] != nil || c.Target != pb.Compare_VALUE &&
		holdsFor(c, &mvccpb.KeyValue{})
}

func holdsFor(c *pb.Compare, kv *mvccpb.KeyValue) bool {
	var order int
	switch c.Target {
	case pb.Compare_VALUE:
		order = bytes.Compare(kv.Value, c.GetValue())
	case pb.Compare_CREATE:
		order = int(kv.CreateRevision - c.GetCreateRevision())
	case pb.Compare_MOD:
		order = int(kv.ModRevision - c.GetModRevision())
	default:
		panic("compare of something else")
	}
	switch c.Result {
	case pb.Compare_EQUAL:
		return order == 0
	case pb.Compare_LESS:
		return order < 0
	}
	panic("compare with something else")
}

func (f *fake) inRange(from, end []byte) []string {
	var found []string
	for _, key := range slices.Sorted(maps.Keys(f.keys)) {
		if key == string(from) || len(end) > 0 && key >= string(from) && key < string(end) {
			found = append(found, key)
		}
	}
	return found
}

func (f *fake) do(op clientv3.Op, events *[]*clientv3.Event) *pb.ResponseOp {
	switch {
	case op.IsTxn():
		cmps, thenOps, elseOps := op.Txn()
		return &pb.ResponseOp{Response: &pb.ResponseOp_ResponseTxn{ResponseTxn: f.run(cmps, thenOps, elseOps, events)}}
	case op.IsPut():
		kv := &mvccpb.KeyValue{Key: op.KeyBytes(), Value: op.ValueBytes(), CreateRevision: f.revision,
			ModRevision: f.revision}
		old := f.keys[string(kv.Key)]
		if old != nil {
			kv.CreateRevision = old.CreateRevision
		}
		f.keys[string(kv.Key)] = kv
		*events = append(*events, &clientv3.Event{Type: clientv3.EventTypePut, Kv: kv})
		return &pb.ResponseOp{Response: &pb.ResponseOp_ResponsePut{ResponsePut: &pb.PutResponse{PrevKv: old}}}
	case op.IsDelete():
		for _, key := range f.inRange(op.KeyBytes(), op.RangeBytes()) {
			gone := &mvccpb.KeyValue{Key: []byte(key), ModRevision: f.revision}
			*events = append(*events, &clientv3.Event{Type: clientv3.EventTypeDelete, Kv: gone, PrevKv: f.keys[key]})
			delete(f.keys, key)
		}
		deleted := &pb.ResponseOp_ResponseDeleteRange{ResponseDeleteRange: &pb.DeleteRangeResponse{}}
		return &pb.ResponseOp{Response: deleted}
	}
	found := &pb.RangeResponse{}
	defer func() {
		if op.IsCountOnly() {
			found.Count, found.Kvs = int64(len(found.Kvs)), nil
		}
	}()
	for _, key := range f.inRange(op.KeyBytes(), op.RangeBytes()) {
		if kv := f.keys[key]; op.MaxCreateRev() == 0 || kv.CreateRevision <= op.MaxCreateRev() {
			found.Kvs = append(found.Kvs, kv)
		}
	}
	if op.MaxCreateRev() != 0 { // such reads want the newest first
		slices.SortFunc(found.Kvs,
			func(a, b *mvccpb.KeyValue) int { return cmp.Compare(b.CreateRevision, a.CreateRevision) })
	}
	return &pb.ResponseOp{Response: &pb.ResponseOp_ResponseRange{ResponseRange: found}}
}

// tell sends the events of one revision to those who watch, unless the network is down: it loses them then.
func (f *fake) tell(events []*clientv3.Event) {
	for ch, of := range f.watches {
		from := string(of.KeyBytes())
		end := string(of.RangeBytes())
		var seen []*clientv3.Event
		for _, e := range events {
			if key := string(e.Kv.Key); key == from || key >= from && key < end {
				seen = append(seen, e)
			}
		}
		if len(seen) > 0 && !f.away && !f.deaf {
			ch <- clientv3.WatchResponse{Header: &pb.ResponseHeader{Revision: f.revision}, Events: seen}
		}
	}
}

func (f *fake) Watch(ctx context.Context, key string, opts ...clientv3.OpOption) clientv3.WatchChan {
	f.mu.Lock()
	defer f.mu.Unlock()
	ch := make(chan clientv3.WatchResponse, 100)
	ch <- clientv3.WatchResponse{Header: &pb.ResponseHeader{Revision: f.revision}, Created: true}
	f.watches[ch] = clientv3.OpGet(key, opts...)
	context.AfterFunc(ctx, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.watches, ch)
		close(ch)
	})
	return ch
}

func (f *fake) Grant(ctx context.Context, ttl int64) (*clientv3.LeaseGrantResponse, error) {
	f.mu.Lock()
	away := f.away
	f.mu.Unlock()
	if away {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return &clientv3.LeaseGrantResponse{ID: 1, TTL: ttl}, nil
}

func (f *fake) KeepAlive(ctx context.Context, _ clientv3.LeaseID) (<-chan *clientv3.LeaseKeepAliveResponse, error) {
	f.kept.Add(1)
	alive := make(chan *clientv3.LeaseKeepAliveResponse)
	context.AfterFunc(ctx, func() { close(alive) })
	return alive, nil
}

func (f *fake) Revoke(context.Context, clientv3.LeaseID) (*clientv3.LeaseRevokeResponse, error) {
	f.kept.Add(-1)
	return &clientv3.LeaseRevokeResponse{}, nil
}

// leases is how many leases that were kept alive were not revoked.
func (f *fake) leases() int64 { return f.kept.Load() }

// record is the record of a lock as the fake has it.
func (f *fake) record(t testing.TB, lock string) metadata.Document {
	l := layout(t)
	f.mu.Lock()
	defer f.mu.Unlock()
	r := &clientv3.GetResponse{}
	from := l.Record(lock)
	for _, key := range f.inRange([]byte(from), []byte(clientv3.GetPrefixRangeEnd(from))) {
		r.Kvs = append(r.Kvs, f.keys[key])
	}
	return metadata.Decode(lock, locktxn.Fields(l, r))
}

// Close is that of a watcher and of a lease keeper.
func (f *fake) Close() error { return nil }

// put writes a key as somebody else, and returns its revision.
func (f *fake) put(key, value string) int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.apply(&heldTxn{thenOps: []clientv3.Op{clientv3.OpPut(key, value)}}).Header.Revision
}

// remove deletes keys as somebody else.
func (f *fake) remove(keys ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var ops []clientv3.Op
	for _, key := range keys {
		ops = append(ops, clientv3.OpDelete(key))
	}
	f.apply(&heldTxn{thenOps: ops})
}
