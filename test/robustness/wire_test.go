package robustness

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// wire stands before one member of etcd, understands what passes, and does to single transactions what a network and a
// busy etcd do: their answers are lost, they are sent twice, or they are done long after the client has given up
// waiting.
//
// It is also where mutants live: it takes guards out of transactions of programs that know nothing of it.
type wire struct {
	to     *grpc.ClientConn
	server *http.Server
	addr   string
	mutant *mutant
	calm   atomic.Bool // no more faults
	often  bool        // for programs with few transactions

	mu     sync.Mutex
	rand   *rand.Rand
	counts map[string]int
	late   sync.WaitGroup // requests that are still under way although nobody waits for them
}

// frame is a message that is passed on as it is.
type frame struct{ bytes []byte }

// frames passes messages on without looking at them.
type frames struct{}

func (frames) Name() string                    { return "proto" }
func (frames) Marshal(v any) ([]byte, error)   { return v.(*frame).bytes, nil }
func (frames) Unmarshal(b []byte, v any) error { v.(*frame).bytes = b; return nil }

func newWire(t testing.TB, endpoint string, seed uint64, m *mutant, often bool) *wire {
	t.Helper()
	target, err := url.Parse(endpoint)
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{mutant: m, often: often, rand: rand.New(rand.NewPCG(seed, 3)), counts: map[string]int{}}
	quick := grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.5,
		MaxDelay: 300 * time.Millisecond}, MinConnectTimeout: time.Second}
	w.to, err = grpc.NewClient("passthrough:///"+target.Host, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(quick), grpc.WithDefaultCallOptions(grpc.ForceCodec(frames{})))
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer(grpc.ForceServerCodec(frames{}), grpc.UnknownServiceHandler(w.handle))
	plain := httputil.NewSingleHostReverseProxy(target)
	plain.ErrorHandler = func(rw http.ResponseWriter, _ *http.Request,
		_ error) {
		rw.WriteHeader(http.StatusBadGateway)
	}
	w.server = &http.Server{Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc") {
			g.ServeHTTP(rw, r)
			return
		}
		plain.ServeHTTP(rw, r)
	}), Protocols: &http.Protocols{}}
	w.server.Protocols.SetHTTP1(true)
	w.server.Protocols.SetUnencryptedHTTP2(true)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w.addr = "http://" + l.Addr().String()
	var wg sync.WaitGroup
	wg.Go(func() { w.server.Serve(l) })
	t.Cleanup(func() { w.server.Close(); w.to.Close(); wg.Wait() })
	return w
}

// handle passes on one call.
func (w *wire) handle(_ any, from grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(from)
	md, _ := metadata.FromIncomingContext(from.Context())
	md = md.Copy()
	for name := range md {
		if strings.HasPrefix(name, ":") || name == "content-type" || name == "user-agent" ||
			strings.HasPrefix(name, "grpc-") || name == "te" {
			delete(md, name)
		}
	}
	ctx := metadata.NewOutgoingContext(from.Context(), md)
	switch method {
	case pb.KV_Txn_FullMethodName:
		return w.txn(ctx, from)
	case pb.Lease_LeaseRevoke_FullMethodName:
		w.hold(ctx)
	}
	return w.pass(ctx, method, from)
}

// pass copies both directions of a call until it ends.
func (w *wire) pass(ctx context.Context, method string, from grpc.ServerStream) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	to, err := w.to.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method)
	if err != nil {
		return err
	}
	go func() {
		for {
			f := &frame{}
			if err := from.RecvMsg(f); err != nil {
				if errors.Is(err, io.EOF) {
					to.CloseSend()
				} else {
					cancel()
				}
				return
			}
			if to.SendMsg(f) != nil {
				return
			}
		}
	}()
	for {
		f := &frame{}
		if err := to.RecvMsg(f); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		if err := from.SendMsg(f); err != nil {
			return err
		}
	}
}

// errBroken is the error of a client whose connection breaks.
var errBroken = status.Error(codes.Unavailable, "error reading from server: EOF")

// txn passes on a transaction, or does not.
func (w *wire) txn(ctx context.Context, from grpc.ServerStream) error {
	in := &frame{}
	if err := from.RecvMsg(in); err != nil {
		return err
	}
	in, step := w.mutate(in)
	send := func(ctx context.Context) (*frame, error) {
		out := &frame{}
		err := w.to.Invoke(ctx, pb.KV_Txn_FullMethodName, in, out)
		return out, err
	}
	fault, delay := w.choose(step)
	switch fault {
	case "late":
		w.later(ctx, delay, send)
		<-ctx.Done()
		return status.FromContextError(ctx.Err()).Err()
	case "overtaken": // the client goes on at once, and what it asked for is over when this comes
		w.later(ctx, delay, send)
		return errBroken
	case "held back": // the client waits for it, and others are first
		sleep(ctx, delay/6)
	case "answer lost":
		if _, err := send(ctx); err != nil {
			return err
		}
		<-ctx.Done()
		return status.FromContextError(ctx.Err()).Err()
	case "broken off":
		send(ctx)
		return errBroken
	case "sent twice":
		send(ctx)
	}
	out, err := send(ctx)
	if err != nil {
		return err
	}
	return from.SendMsg(out)
}

// later sends a request after its client has given up waiting.
func (w *wire) later(ctx context.Context, delay time.Duration, send func(context.Context) (*frame, error)) {
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
func (w *wire) mutate(in *frame) (out *frame, step string) {
	if w.mutant == nil || w.mutant.drop == nil {
		return in, ""
	}
	txn := &pb.TxnRequest{}
	codec := encoding.GetCodecV2("proto")
	if err := codec.Unmarshal(mem.BufferSlice{mem.SliceBuffer(in.bytes)}, txn); err != nil {
		return in, ""
	}
	step = shapeOf(txn).step()
	if n := w.mutant.strip(txn); n > 0 {
		w.mu.Lock()
		w.counts["guards left out"] += n
		w.mu.Unlock()
	}
	bytes, err := codec.Marshal(txn)
	if err != nil {
		return in, step
	}
	return &frame{bytes.Materialize()}, step
}

// done waits until nothing is under way and returns what was done to transactions.
func (w *wire) done() map[string]int {
	w.calm.Store(true)
	w.late.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.counts
}
