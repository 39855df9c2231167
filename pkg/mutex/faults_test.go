package mutex_test

import (
	"context"
	"errors"
	"fmt"
	"net"
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
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

func TestAcquisitionWhoseAnswerIsLostIsTheSameHold(t *testing.T) {
	server := etcdtest.Start(t)
	proxy := etcdtest.NewProxy(t, server.Endpoint())
	locks := newClient(t, connect(t, proxy.Endpoint()))
	take(t, locks, "warm").Unlock()

	proxy.DropAnswers()
	got := make(chan *mutex.Lock)
	go func() {
		l, err := locks.Lock(context.Background(), "a")
		if err != nil {
			t.Error(err)
		}
		got <- l
	}()
	etcd := server.Client(t)
	etcdtest.Eventually(t, "the commit", func() bool { return read(t, etcd, "a").Token != 0 })
	first := read(t, etcd, "a")
	proxy.Heal()
	l := <-got
	if l.UUID() != first.UUID || l.Token() != first.Token {
		t.Errorf("the handle says %s token %d, the first sending made %s token %d", l.UUID(), l.Token(), first.UUID,
			first.Token)
	}
	if err := l.Unlock(); err != nil {
		t.Error(err)
	}
}

func TestHolderBehindADeadNetworkStopsInTime(t *testing.T) {
	server := etcdtest.Start(t)
	proxy := etcdtest.NewProxy(t, server.Endpoint())
	locks := newClient(t, connect(t, proxy.Endpoint()))
	l := take(t, locks, "a", mutex.AutoUnlockAfter(3*time.Second), mutex.SafetyMargin(2*time.Second))
	proxy.Stall()
	defer proxy.Heal()
	<-l.Lost()
	stopped := time.Now()
	if at := read(t, server.Client(t), "a").AutoUnlockAt; !stopped.Before(at) {
		t.Errorf("the holder stopped at %v, the auto-unlock was due at %v", stopped, at)
	}
	proxy.Heal()
	if err := l.Unlock(); err != nil {
		t.Errorf("nobody took the lock away, yet unlock says %v", err)
	}
}

func TestLateCommitOfACancelledAcquisitionIsRefused(t *testing.T) {
	server := etcdtest.Start(t)
	etcd := server.Client(t)
	var late atomic.Pointer[heldTxn]
	etcd.KV = &txns{KV: etcd.KV, commit: func(ctx context.Context, txn *heldTxn) (*clientv3.TxnResponse, error) {
		if late.CompareAndSwap(nil, txn) { // the first one is on its way for long
			<-ctx.Done()
			return nil, ctx.Err()
		}
		if len(txn.cmps) == 4 { // its repetitions
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return txn.send(ctx)
	}}
	locks := newClient(t, etcd)
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	if _, err := locks.Lock(ctx, "a"); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("want the end of the context, got %v", err)
	}
	if err := locks.Close(); err != nil { // waits for the clean-up
		t.Fatal(err)
	}
	r, err := late.Load().send(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if r.Succeeded || read(t, server.Client(t), "a").Token != 0 {
		t.Error("an acquisition was committed after its cancellation")
	}
}

func TestHiddenSecondSendingIsTheSameHold(t *testing.T) {
	for _, code := range []codes.Code{codes.Canceled, codes.DeadlineExceeded, codes.Unavailable, codes.Internal,
		codes.Unknown} {
		t.Run(code.String(), func(t *testing.T) {
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			server := grpc.NewServer()
			forgets := &forgetful{code: code}
			pb.RegisterKVServer(server, forgets)
			pb.RegisterLeaseServer(server, forgets)
			go server.Serve(listener)
			defer server.Stop()
			etcd, err := clientv3.New(clientv3.Config{Endpoints: []string{listener.Addr().String()},
				Logger: zap.NewNop()})
			if err != nil {
				t.Fatal(err)
			}
			defer etcd.Close()
			locks, err := mutex.New(etcd, mutex.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer locks.Close()
			l, err := locks.TryLock(context.Background(), "a")
			if err != nil {
				t.Fatal(err)
			}
			if l.Token() != 7 {
				t.Errorf("the token is %d", l.Token())
			}
			if err := l.Unlock(); err != nil {
				t.Error(err)
			}
		})
	}
}

// forgetful commits the first transaction, but answers with an error.
type forgetful struct {
	pb.UnimplementedKVServer
	pb.UnimplementedLeaseServer
	code codes.Code
	uuid atomic.Pointer[mvccpb.KeyValue]
}

// LeaseGrant serves the tombstone that keeps out the attempt whose answer was lost.
func (f *forgetful) LeaseGrant(_ context.Context, r *pb.LeaseGrantRequest) (*pb.LeaseGrantResponse, error) {
	return &pb.LeaseGrantResponse{Header: &pb.ResponseHeader{Revision: 9}, ID: 1, TTL: r.TTL}, nil
}

func (f *forgetful) Txn(_ context.Context, r *pb.TxnRequest) (*pb.TxnResponse, error) {
	answer := &pb.TxnResponse{Header: &pb.ResponseHeader{Revision: 9}}
	if r.Success[0].GetRequestDeleteRange() != nil { // the release
		answer.Succeeded = true
		return answer, nil
	}
	if slices.ContainsFunc(r.Success, func(op *pb.RequestOp) bool { return op.GetRequestPut() == nil }) { // the mark
		return answer, nil
	}
	p := r.Success[0].GetRequestPut()
	if f.uuid.CompareAndSwap(nil, &mvccpb.KeyValue{Key: p.Key, Value: p.Value, CreateRevision: 7, ModRevision: 7}) {
		return nil, status.Error(f.code, "the answer got lost")
	}
	kvs := []*mvccpb.KeyValue{f.uuid.Load()}
	for _, op := range r.Success[1:] {
		kvs = append(kvs, &mvccpb.KeyValue{Key: op.GetRequestPut().Key, Value: op.GetRequestPut().Value,
			CreateRevision: 7, ModRevision: 7})
	}
	read := &pb.ResponseOp_ResponseRange{ResponseRange: &pb.RangeResponse{Kvs: kvs}}
	answer.Responses = []*pb.ResponseOp{{Response: read}}
	return answer, nil
}

func TestFullEtcdTakesNoLocksAndGivesThemBack(t *testing.T) {
	server := etcdtest.Start(t, etcdtest.Quota(4<<20))
	etcd := server.Client(t)
	locks := newClient(t, etcd)
	l := take(t, locks, "a")
	for i := 0; ; i++ {
		if _, err := etcd.Put(context.Background(), fmt.Sprintf("/fill/%d", i),
			strings.Repeat("x", 256<<10)); errors.Is(err, rpctypes.ErrNoSpace) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	began := time.Now()
	_, err := locks.Lock(context.Background(), "b")
	if !errors.Is(err, rpctypes.ErrNoSpace) || time.Since(began) > 10*time.Second {
		t.Errorf("lock: %v after %v", err, time.Since(began))
	}
	if err := l.Alive(context.Background()); !errors.Is(err, rpctypes.ErrNoSpace) || l.Context().Err() != nil {
		t.Errorf("alive: %v, context: %v", err, context.Cause(l.Context()))
	}
	if err := l.Unlock(); err != nil {
		t.Errorf("unlock: %v", err)
	}
	if read(t, etcd, "b").Token != 0 {
		t.Error("the refused lock is held")
	}
	if _, err := etcd.Delete(context.Background(), "/fill/", clientv3.WithPrefix()); err != nil {
		t.Fatal(err)
	}
	r, err := etcd.Get(context.Background(), "x")
	if err != nil {
		t.Fatal(err)
	}
	etcd.Compact(context.Background(), r.Header.Revision)
	etcd.Defragment(context.Background(), server.Endpoint())
	if _, err := etcd.AlarmDisarm(context.Background(), &clientv3.AlarmMember{}); err != nil {
		t.Fatal(err)
	}
}

// TestLeaderKilledAgainAndAgain has clients take turns while the leader is killed under them. The function that they
// run checks what a lock promises.
func TestLeaderKilledAgainAndAgain(t *testing.T) {
	t.Parallel()
	members := etcdtest.Cluster(t, 3)
	etcd := members.Client(t)
	var inside atomic.Int32
	var last atomic.Int64
	var turns atomic.Int32
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 4 {
		locks, err := mutex.New(members.Client(t), mutex.Options{AttemptTimeout: 300 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			defer locks.Close()
			for running := true; running; {
				select {
				case <-stop:
					running = false
				default:
				}
				ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
				err := locks.Do(ctx, "a", func(ctx context.Context) error {
					if inside.Add(1) != 1 {
						t.Error("two hold the lock")
					}
					defer inside.Add(-1)
					token := mutex.FromContext(ctx).Token()
					if before := last.Swap(token); token <= before {
						t.Errorf("token %d came after %d", token, before)
					}
					turns.Add(1)
					return nil
				})
				cancel()
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	for range 3 {
		was := turns.Load()
		etcdtest.Eventually(t, "progress", func() bool { return turns.Load() > was+20 || t.Failed() })
		leader := members.Leader(t)
		members.Kill(leader)
		was = turns.Load()
		etcdtest.Eventually(t, "progress without the old leader", func() bool {
			return turns.Load() > was+20 || t.Failed()
		})
		members.Restart(leader)
		members.WaitReady(t)
	}
	close(stop)
	wg.Wait()
	if doc := read(t, etcd, "a"); len(doc.Fields) > 0 {
		t.Errorf("a record is left: %+v", doc.Record)
	}
}

func TestPausedMemberDelaysALockByItsAttempts(t *testing.T) {
	t.Parallel()
	members := etcdtest.Cluster(t, 3)
	locks, err := mutex.New(members.Client(t), mutex.Options{AttemptTimeout: 300 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer locks.Close()
	take(t, locks, "warm").Unlock()
	paused := (members.Leader(t) + 1) % 3
	members.Pause(paused)
	defer members.Resume(paused)
	for i := range 12 {
		began := time.Now()
		l := take(t, locks, fmt.Sprint(i))
		if err := l.Unlock(); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > 10*time.Second { // less than the request timeout
			t.Errorf("lock and unlock took %v", took)
		}
	}
}

func TestNothingIsLeftRunning(t *testing.T) {
	etcd := etcdtest.Cluster(t, 1).Client(t) // its own goroutines are in another process
	watches := spyOnWatches(etcd)
	etcdtest.Count(t, etcd, mutex.DefaultPrefix) // connects
	keepAlives(t, etcd)
	before := goleak.IgnoreCurrent()
	locks, err := mutex.New(etcd, mutex.Options{})
	if err != nil {
		t.Fatal(err)
	}
	kept := take(t, locks, "kept", mutex.Heartbeat(time.Hour))
	<-watches
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Millisecond)
	defer cancel()
	if _, err := locks.Lock(ctx, "kept"); err == nil {
		t.Error("two hold the lock")
	}
	lost := take(t, locks, "lost")
	<-watches
	etcd.Delete(context.Background(), "/mutexes/lost/", clientv3.WithPrefix())
	<-lost.Lost()
	if err := locks.Close(); err != nil {
		t.Error(err)
	}
	<-kept.Context().Done()
	nothingLeft(t, before)
}

// keepAlives makes etcd's client start its keep-alive loop, which runs until the client is closed.
func keepAlives(t testing.TB, etcd *clientv3.Client) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	lease, err := etcd.Grant(ctx, 60)
	if err != nil {
		t.Fatal(err)
	}
	alive, err := etcd.KeepAlive(ctx, lease.ID)
	if err != nil {
		t.Fatal(err)
	}
	<-alive
	if _, err := etcd.Revoke(ctx, lease.ID); err != nil {
		t.Fatal(err)
	}
}

// connect is an etcd client as etcdtest makes them, of another endpoint.
func connect(t testing.TB, endpoint string) *clientv3.Client {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, MaxUnaryRetries: 1, Logger: zap.NewNop(),
		DialTimeout: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// nothingLeft waits until only the goroutines from before are left.
func nothingLeft(t *testing.T, before goleak.Option) {
	t.Helper()
	err := goleak.Find(before)
	for end := time.Now().Add(10 * time.Second); err != nil && time.Now().Before(end); {
		err = goleak.Find(before)
	}
	if err != nil {
		t.Error(err)
	}
}
