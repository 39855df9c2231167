package robustness

import (
	"context"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
)

// wire stands before one member of etcd, understands what passes, and does to single transactions what a network and a
// busy etcd do: their answers are lost, they are sent twice, or they are done long after the client has given up
// waiting.
//
// It is also where mutants live: it takes guards out of transactions of programs that know nothing of it.
type wire struct {
	*etcdtest.Relay
	mutant *mutant
	calm   atomic.Bool // no more faults
	often  bool        // for programs with few transactions

	mu     sync.Mutex
	rand   *rand.Rand
	counts map[string]int
	late   sync.WaitGroup // requests that are still under way although nobody waits for them
}

func newWire(t testing.TB, endpoint string, seed uint64, m *mutant, often bool) *wire {
	w := &wire{mutant: m, often: often, rand: rand.New(rand.NewPCG(seed, 3)), counts: map[string]int{}}
	w.Relay = etcdtest.NewRelay(t, endpoint, w.handle, http.NotFoundHandler())
	return w
}

func (w *wire) handle(ctx context.Context, method string, from grpc.ServerStream) error {
	switch method {
	case pb.KV_Txn_FullMethodName:
		return w.txn(ctx, from)
	case pb.Lease_LeaseRevoke_FullMethodName:
		w.hold(ctx)
	}
	return w.Pass(ctx, method, from)
}

func (w *wire) txn(ctx context.Context, from grpc.ServerStream) error {
	in := &etcdtest.Message{}
	if err := from.RecvMsg(in); err != nil {
		return err
	}
	in, step := w.mutate(in)
	send := func(ctx context.Context) (*etcdtest.Message, error) {
		return w.Call(ctx, pb.KV_Txn_FullMethodName, in)
	}
	fault, delay := w.choose(step)
	switch fault {
	case "late", "overtaken": // who is overtaken goes on at once, and what it asked for is over when this comes
		w.later(ctx, delay, send)
	case "held back": // the client waits for it, and others are first
		sleep(ctx, delay/6)
	case "answer lost", "broken off", "sent twice":
		send(ctx)
	}
	switch fault {
	case "late", "answer lost":
		<-ctx.Done()
		return etcdtest.ErrBroken
	case "overtaken", "broken off":
		return etcdtest.ErrBroken
	}
	out, err := send(ctx)
	if err != nil {
		return err
	}
	return from.SendMsg(out)
}

func (w *wire) later(ctx context.Context, delay time.Duration, send func(context.Context) (*etcdtest.Message, error)) {
	md, _ := metadata.FromOutgoingContext(ctx)
	w.late.Go(func() {
		time.Sleep(delay)
		late, cancel := context.WithTimeout(metadata.NewOutgoingContext(context.Background(), md), 2*time.Second)
		defer cancel()
		send(late)
	})
}

// choose decides what happens to a transaction that makes this step: mostly nothing.
func (w *wire) choose(step string) (fault string, delay time.Duration) {
	if w.calm.Load() {
		return "", 0
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	n := w.rand.IntN(1000)
	if w.often {
		n /= 4
	}
	if w.mutant != nil {
		n /= 3
	}
	for _, f := range []struct {
		name string
		per  int
	}{{"late", 30}, {"answer lost", 15}, {"broken off", 15}, {"sent twice", 20}} {
		if n -= f.per; n < 0 {
			fault = f.name
			w.counts["transaction "+fault]++
			break
		}
	}
	if w.mutant != nil && slices.Contains(w.mutant.late, step) && w.rand.IntN(3) == 0 {
		fault = []string{"late", "overtaken", "held back"}[w.rand.IntN(3)]
	}
	return fault, 50*time.Millisecond + time.Duration(w.rand.Int64N(int64(3*time.Second)))
}

// hold keeps a request back for a while, now and then. A lease that is revoked late lets what was sent with it get
// through.
func (w *wire) hold(ctx context.Context) {
	if fault, delay := w.choose(""); fault != "" || w.mutant != nil && !w.calm.Load() {
		sleep(ctx, delay)
	}
}

// mutate takes out the guards that the mutant does without, and tells what the transaction is about.
func (w *wire) mutate(in *etcdtest.Message) (out *etcdtest.Message, step string) {
	if w.mutant == nil || w.mutant.drop == nil {
		return in, ""
	}
	txn := &pb.TxnRequest{}
	if err := proto.Unmarshal(in.Bytes, txn); err != nil {
		panic(err)
	}
	step = shapeOf(txn).step()
	if n := w.mutant.strip(txn); n > 0 {
		w.mu.Lock()
		w.counts["guards left out"] += n
		w.mu.Unlock()
	}
	bytes, err := proto.Marshal(txn)
	if err != nil {
		panic(err)
	}
	return &etcdtest.Message{Bytes: bytes}, step
}

func (w *wire) done() map[string]int {
	w.calm.Store(true)
	w.late.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.counts
}
