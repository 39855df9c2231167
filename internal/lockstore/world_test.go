package lockstore_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	grpcmeta "google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/lockstore"
	"github.com/clustermutex/unlocker/internal/locktxn"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

func TestMain(m *testing.M) { etcdtest.Main(m) }

var at = time.Unix(1_553_682_600, 0).UTC()

// world is an etcd, a store on it, and another client beside it.
type world struct {
	testing.TB
	*lockstore.Store
	etcd *clientv3.Client
	l    protocol.Layout
}

// start returns a world with its own etcd: no other test writes to it, and it may be compacted.
func start(t testing.TB, opts ...lockstore.Option) world {
	t.Helper()
	return on(t, etcdtest.Start(t).Client(t), opts...)
}

// alone is like start, for a parallel test.
func alone(t *testing.T, opts ...lockstore.Option) world {
	t.Helper()
	t.Parallel()
	return start(t, opts...)
}

// parallel returns a world in the shared etcd, for light tests that neither compact nor stream lists.
func parallel(t *testing.T) world {
	t.Helper()
	t.Parallel()
	return on(t, etcdtest.Shared(t).Client(t))
}

func on(t testing.TB, c *clientv3.Client, opts ...lockstore.Option) world {
	l := protocol.DefaultLayout()
	return world{t, lockstore.New(c, l, slices.Insert(opts, 0, patient)...), c, l}
}

// patient makes watches bear silence, which a busy machine can cause.
var patient = lockstore.WithMaxSilence(time.Hour)

// wired returns a world behind a wire, for a parallel test.
func wired(t *testing.T) (*wire, world) {
	t.Helper()
	t.Parallel()
	line := &wire{}
	return line, behind(t, line)
}

// behind returns a world in the shared etcd behind a wire.
func behind(t testing.TB, line *wire) world {
	t.Helper()
	shared := etcdtest.Shared(t)
	return on(t, shared.Within(line.client(t, shared.Endpoint())))
}

// onBothServers runs a test on an etcd that streams lists, and on one that cannot.
func onBothServers(t *testing.T, test func(t *testing.T, w world)) {
	t.Parallel()
	server := etcdtest.Start(t)
	t.Run("of a server that streams", func(t *testing.T) { test(t, on(t, (&wire{}).client(t, server.Endpoint()))) })
	t.Run("of an older server", func(t *testing.T) { test(t, on(t, olderThan37().client(t, server.Endpoint()))) })
}

func (w world) put(key, value string, opts ...clientv3.OpOption) int64 {
	w.Helper()
	resp, err := w.etcd.Put(w.Context(), key, value, opts...)
	proctest.Must(w, err)
	return resp.Header.Revision
}

// hold takes the lock as the client library does, and returns its record.
func (w world) hold(lock, uuid string, change ...func(*lockrecord.Draft)) *metadata.Record {
	w.Helper()
	d := lockrecord.Draft{
		UUID:     uuid,
		Identity: metadata.Identity{Owner: "billing", Hostname: "billing-7f9c", PID: 17, Purpose: "nightly invoices"},
		LockedAt: at, AlertAt: at.Add(time.Minute), AutoUnlockAt: at.Add(2 * time.Minute),
		Backtrace: "main.main main.go:1\n",
	}
	for _, c := range change {
		c(&d)
	}
	fields, err := d.Fields()
	proctest.Must(w, err)
	_, err = locktxn.Acquire(w.l, locktxn.PlainClaim(lock), uuid, fields, false).Commit(w.Context(), w.etcd)
	proctest.Must(w, err)
	return w.record(lock)
}

func holdOf(r *metadata.Record) locktxn.Hold {
	return locktxn.Hold{Lock: r.Name, UUID: r.UUID, Token: r.Token}
}

func (w world) release(r *metadata.Record) {
	w.Helper()
	_, err := locktxn.Release(w.l, holdOf(r)).Commit(w.Context(), w.etcd)
	proctest.Must(w, err)
}

// expired takes numbered locks and returns their removals.
func (w world) expired(format string, n int) []lockrecord.Removal {
	w.Helper()
	removals := make([]lockrecord.Removal, n)
	each(w, n, func(i int) { removals[i] = removal(w.hold(fmt.Sprintf(format, i), uuid(i))) })
	return removals
}

// unwritten are the protocol's fields that hold does not write as keys of their own.
func unwritten() []string {
	return slices.DeleteFunc(lockrecord.ReservedFields(), func(name string) bool {
		return slices.Contains([]string{lockrecord.FieldUUID, lockrecord.FieldAlertAt, lockrecord.FieldAutoUnlockAt,
			lockrecord.FieldMetadata}, name)
	})
}

func many(format string, n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprintf(format, i))
	}
	return names
}

// putFields writes the same value to fields of a record.
func (w world) putFields(lock string, names []string, value string) {
	w.Helper()
	for some := range slices.Chunk(names, 100) {
		var puts []clientv3.Op
		for _, name := range some {
			puts = append(puts, clientv3.OpPut(w.l.Record(lock)+name, value))
		}
		_, err := w.etcd.Txn(w.Context()).Then(puts...).Commit()
		proctest.Must(w, err)
	}
}

func (w world) record(lock string) *metadata.Record {
	w.Helper()
	var d metadata.FullRecord
	proctest.Eventually(w, "the record", func() (err error) { // whose read takes 5 s at most
		d, _, err = w.ReadRecord(w.Context(), lock)
		return err
	})
	return &d.Record
}

func (w world) alive(r *metadata.Record, deadline time.Time) {
	w.Helper()
	by := metadata.FormatTime(deadline)
	resp, err := locktxn.Alive(w.l, holdOf(r), by, by, by).Commit(w.Context(), w.etcd)
	if err != nil || !resp.Succeeded {
		w.Fatalf("alive: %v, %v", resp, err)
	}
}

// prove writes a witness's proof about a hold and adds it to the record.
func (w world) prove(r *metadata.Record) {
	w.Helper()
	st := metadata.Statement{Name: r.Name, UUID: r.UUID, Token: r.Token, Cause: metadata.CauseProcessEnded}
	st.Revision = w.put(w.l.Death(r.UUID), protocol.Marshal(st))
	lockrecord.AttachStatements(r, &st, nil)
}

// do runs an operator's action on a hold.
func (w world) do(r *metadata.Record, a protocol.Action) error {
	_, err := w.Perform(w.Context(), a.Verb, protocol.ActionTarget{Hold: r}, a)
	return err
}

func (w world) endDelay(d *metadata.LockDelay, a protocol.Action) error {
	_, err := w.Perform(w.Context(), protocol.VerbEndDelay, protocol.ActionTarget{Delay: d}, a)
	return err
}

// did is like do but fails the test on an error.
func (w world) did(r *metadata.Record, a protocol.Action) {
	w.Helper()
	proctest.Must(w, w.do(r, a))
}

// remove ends a hold like an unlocker.
func (w world) remove(r lockrecord.Removal) {
	w.Helper()
	w.removeAll([]lockrecord.Removal{r})
}

// removeAll ends holds like an unlocker, except those that have changed.
func (w world) removeAll(removals []lockrecord.Removal, changed ...int) {
	w.Helper()
	for i, err := range w.AutoUnlock(w.Context(), removals) {
		want := error(nil)
		if slices.Contains(changed, i) {
			want = metadata.ErrChanged
		}
		if err != want {
			w.Errorf("%s: %v, want %v", removals[i].Record.Name, err, want)
		}
	}
}

// moved expects the error of an action that came too late.
func (w world) moved(what string, err error) {
	w.Helper()
	if !errors.Is(err, metadata.ErrChanged) {
		w.Errorf("%s: %v", what, err)
	}
}

// audited checks that the audit trail has only this action.
func (w world) audited(a protocol.Action) {
	w.Helper()
	if actions, err := w.ReadAudit(w.Context(), 10); err != nil || len(actions) != 1 || actions[0] != a {
		w.Errorf("audit %+v, %v", actions, err)
	}
}

func removal(r *metadata.Record) lockrecord.Removal {
	return lockrecord.Removal{Record: r, Ending: lockrecord.NewEnding(r, metadata.EndingAutoUnlocked, "u1",
		"its deadline passed", at.Add(time.Hour))}
}

func (w world) get(key string, opts ...clientv3.OpOption) []*mvccpb.KeyValue {
	w.Helper()
	resp, err := w.etcd.Get(w.Context(), key, opts...)
	proctest.Must(w, err)
	return resp.Kvs
}

func (w world) keys(prefix string) (keys []string) {
	w.Helper()
	for _, kv := range w.get(prefix, clientv3.WithPrefix()) {
		keys = append(keys, string(kv.Key))
	}
	return keys
}

// leaseOf returns the lease of a key: its ID, and the granted time to live in seconds.
func (w world) leaseOf(key string) (clientv3.LeaseID, int64) {
	w.Helper()
	kvs := w.get(key)
	if len(kvs) != 1 {
		w.Fatalf("%s is not there", key)
	}
	ttl, err := w.etcd.TimeToLive(w.Context(), clientv3.LeaseID(kvs[0].Lease))
	proctest.Must(w, err)
	return ttl.ID, ttl.GrantedTTL
}

func (w world) leases() []clientv3.LeaseStatus {
	w.Helper()
	resp, err := w.etcd.Leases(w.Context())
	proctest.Must(w, err)
	return resp.Leases
}

func (w world) revoke(id clientv3.LeaseID) {
	w.Helper()
	_, err := w.etcd.Revoke(w.Context(), id)
	proctest.Must(w, err)
}

func (w world) deleteKey(key string) int64 {
	w.Helper()
	resp, err := w.etcd.Delete(w.Context(), key)
	proctest.Must(w, err)
	return resp.Header.Revision
}

func (w world) compact(revision int64) {
	w.Helper()
	_, err := w.etcd.Compact(w.Context(), revision)
	proctest.Must(w, err)
}

func uuid(n int) string { return fmt.Sprintf("00000000-0000-4000-8000-%012d", n) }

// wire sits between a client and its etcd and manipulates requests for a test.
type wire struct {
	mu   sync.Mutex
	txn  func(req *pb.TxnRequest, send func() error) error
	any  func(method string) error // before a request is sent or a stream opens
	hang func(req any) bool        // nobody answers
	puts func() error              // before a put

	bytes atomic.Int64 // of the largest answer to a read
}

func (w *wire) onTxn(f func(req *pb.TxnRequest, send func() error) error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.txn = f
}

// once is like onTxn for the next transaction only.
func (w *wire) once(f func(send func() error) error) {
	w.onTxn(func(_ *pb.TxnRequest, send func() error) error {
		w.onTxn(nil)
		return f(send)
	})
}

// fill commits the next transaction like an etcd that thereby runs out of space, which answers that it did not. Then it
// calls a function.
func (w *wire) fill(then func()) {
	w.once(func(send func() error) error {
		if err := send(); err != nil {
			return err
		}
		then()
		return rpctypes.ErrGRPCNoSpace
	})
}

// lose loses the answers to writes, committed or not. Then it calls a function.
func (w *wire) lose(committed bool, then func()) {
	w.onTxn(func(req *pb.TxnRequest, send func() error) error {
		if !writes(req) {
			return send()
		}
		if committed {
			if err := send(); err != nil {
				return err
			}
		}
		if then != nil {
			then()
		}
		return errLost
	})
}

// client returns a client behind the wire.
func (w *wire) client(t testing.TB, endpoint string) *clientv3.Client {
	t.Helper()
	return dial(t, clientv3.Config{Endpoints: []string{endpoint}, DialOptions: []grpc.DialOption{
		grpc.WithChainUnaryInterceptor(w.unary), grpc.WithChainStreamInterceptor(w.stream)}})
}

func clientAs(t testing.TB, s *etcdtest.Server, user, password string) *clientv3.Client {
	t.Helper()
	return dial(t, clientv3.Config{Endpoints: []string{s.Endpoint()}, Username: user, Password: password})
}

func dial(t testing.TB, conf clientv3.Config) *clientv3.Client {
	t.Helper()
	conf.MaxUnaryRetries = 1
	conf.Logger = zap.NewNop()
	conf.DialTimeout = 5 * time.Second
	c, err := clientv3.New(conf)
	proctest.Must(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

func (w *wire) unary(ctx context.Context, method string, req, reply any, c *grpc.ClientConn, send grpc.UnaryInvoker,
	opts ...grpc.CallOption) error {
	w.mu.Lock()
	txn := w.txn
	w.mu.Unlock()
	if w.hang != nil && w.hang(req) {
		<-ctx.Done()
		return status.FromContextError(ctx.Err()).Err()
	}
	if _, ok := req.(*pb.PutRequest); ok && w.puts != nil {
		if err := w.puts(); err != nil {
			return err
		}
	}
	if err := w.refuse(ctx, method); err != nil {
		return err
	}
	do := func() error { return send(ctx, method, req, reply, c, opts...) }
	if r, ok := req.(*pb.TxnRequest); ok && txn != nil {
		return txn(r, do)
	}
	err := do()
	if r, ok := reply.(*pb.RangeResponse); ok && err == nil {
		w.bytes.Store(max(w.bytes.Load(), int64(proto.Size(r))))
	}
	return err
}

func (w *wire) stream(ctx context.Context, d *grpc.StreamDesc, c *grpc.ClientConn, method string, open grpc.Streamer,
	opts ...grpc.CallOption) (grpc.ClientStream, error) {
	if err := w.refuse(ctx, method); err != nil {
		return nil, err
	}
	return open(ctx, d, c, method, opts...)
}

// refuse asks any. As in etcd, a member without a leader keeps what does not require one.
func (w *wire) refuse(ctx context.Context, method string) (err error) {
	if w.any != nil {
		err = w.any(method[strings.LastIndex(method, "/")+1:])
	}
	sent, _ := grpcmeta.FromOutgoingContext(ctx)
	if err == rpctypes.ErrGRPCNoLeader && sent["hasleader"] == nil {
		<-ctx.Done()
	}
	return err
}
