//go:build conformance

package conformance

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	gw "github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	etcdgw "go.etcd.io/etcd/api/v3/etcdserverpb/gw"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

// wire stands before one member of etcd and does to single requests what a bad network does. It serves gRPC, and on the
// same port etcd's JSON gateway, which asks the wire: the same case is made for clients of both kinds.
type wire struct {
	*etcdtest.Relay
	late sync.WaitGroup // requests that are under way although nobody waits for them
	ends context.Context

	mu      sync.Mutex
	judge   func(sent) fate
	hear    func(sent, *pb.TxnResponse)
	cut     bool
	stalled chan struct{} // closed when the stall ends; nil without one
	streams map[int]context.CancelFunc
	made    int

	answered int  // requests, streams apart
	watched  bool // a watch was opened, or was to be
	reads    int  // requests that were answered since
}

type sent struct {
	method string
	puts   []string // keys that a transaction puts if its compares hold
	all    []string // and if not
	txn    bool
	body   *pb.TxnRequest // of a transaction; of a read that is one by itself, too
}

func (s sent) watches() bool { return s.method == pb.Watch_Watch_FullMethodName }

func (s sent) takes() bool {
	return slices.ContainsFunc(s.puts, func(key string) bool { return strings.HasSuffix(key, "/uuid") })
}

type fate struct {
	loseRequest bool          // it never arrives
	loseAnswer  bool          // it is done, and its answer never arrives
	twice       bool          // it is done twice; the second answer is the one that arrives
	reset       bool          // what is lost is lost by an end of the connection; otherwise by silence
	mute        bool          // of a watch: it is confirmed, and brings nothing
	slow        time.Duration // the answer takes so much longer
	held        <-chan struct{}
	arrived     func() // called when a held request was done
}

func newWire(t testing.TB, endpoint string) *wire {
	ends, end := context.WithCancel(context.Background())
	w := &wire{ends: ends, streams: map[int]context.CancelFunc{}}
	gateway := gw.NewServeMux(gw.WithMarshalerOption(gw.MIMEWildcard, &gw.HTTPBodyMarshaler{Marshaler: &gw.JSONPb{
		MarshalOptions:   protojson.MarshalOptions{UseProtoNames: true},
		UnmarshalOptions: protojson.UnmarshalOptions{DiscardUnknown: true}}}), // as etcd does
		gw.WithErrorHandler(func(ctx context.Context, mux *gw.ServeMux, m gw.Marshaler, rw http.ResponseWriter,
			r *http.Request, err error) {
			if errors.Is(err, etcdtest.ErrBroken) {
				panic(http.ErrAbortHandler)
			}
			gw.DefaultHTTPErrorHandler(ctx, mux, m, rw, r, err)
		}),
		gw.WithStreamErrorHandler(func(context.Context, error) *status.Status { panic(http.ErrAbortHandler) }))
	w.Relay = etcdtest.NewRelay(t, endpoint, w.pass, gateway)
	conn, err := grpc.NewClient("passthrough:///"+strings.TrimPrefix(w.Addr, "http://"),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	proctest.Must(t, err)
	for _, register := range []func(context.Context, *gw.ServeMux, *grpc.ClientConn) error{etcdgw.RegisterKVHandler,
		etcdgw.RegisterWatchHandler, etcdgw.RegisterLeaseHandler, etcdgw.RegisterAuthHandler} {
		proctest.Must(t, register(ends, gateway, conn))
	}
	t.Cleanup(func() {
		w.heal()
		end()
		w.late.Wait()
	})
	return w
}

// judgeBy decides what becomes of each request from now on; nil lets all pass.
func (w *wire) judgeBy(judge func(sent) fate) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.judge = judge
}

// hearBy is told from now on what was answered to transactions and reads.
func (w *wire) hearBy(hear func(sent, *pb.TxnResponse)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hear = hear
}

// stall lets nothing pass from now on, and ends no connection, until heal.
func (w *wire) stall() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stalled == nil {
		w.stalled = make(chan struct{})
	}
}

func (w *wire) cutOff() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut = true
	for _, end := range w.streams {
		end()
	}
}

func (w *wire) heal() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut = false
	if w.stalled != nil {
		close(w.stalled)
		w.stalled = nil
	}
}

// open registers a request. It reports false if it has to end at once.
func (w *wire) open(ctx context.Context) (open context.Context, end func(), ok bool) {
	open, cancel := context.WithCancel(ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cut {
		cancel()
		return nil, nil, false
	}
	w.made++
	number := w.made
	w.streams[number] = cancel
	return open, func() {
		cancel()
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.streams, number)
	}, true
}

func (w *wire) notes(watch bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case watch:
		w.watched = true
	case w.watched:
		w.reads++
		fallthrough
	default:
		w.answered++
	}
}

func (w *wire) answers(s sent, out []byte) {
	w.notes(false)
	w.mu.Lock()
	hear := w.hear
	w.mu.Unlock()
	if s.body == nil || hear == nil {
		return
	}
	answer := &pb.TxnResponse{}
	alone := &pb.RangeResponse{}
	if s.txn {
		proto.Unmarshal(out, answer)
	} else if proto.Unmarshal(out, alone) == nil {
		answer.Succeeded = true
		answer.Responses = []*pb.ResponseOp{{Response: &pb.ResponseOp_ResponseRange{ResponseRange: alone}}}
	}
	hear(s, answer)
}

// passes waits for the end of a stall. It reports false if nobody waits for the request any more.
func (w *wire) passes(ctx context.Context) bool {
	w.mu.Lock()
	stalled := w.stalled
	w.mu.Unlock()
	if stalled == nil {
		return true
	}
	select {
	case <-stalled:
		return true
	case <-ctx.Done():
		return false
	}
}

func (w *wire) fateOf(s sent) fate {
	w.mu.Lock()
	judge := w.judge
	w.mu.Unlock()
	if judge == nil {
		return fate{}
	}
	return judge(s)
}

// errLost ends a request whose answer does not come.
var errLost = errors.New("lost on the wire")

// carry lets a request meet its fate. send does it once and may be called without anybody waiting for it.
func (w *wire) carry(ctx context.Context, f fate, send func(context.Context) (*etcdtest.Message, error)) (
	answer *etcdtest.Message, err error) {
	none := func() (*etcdtest.Message, error) {
		if !f.reset {
			<-ctx.Done()
		}
		return nil, errLost
	}
	switch {
	case f.held != nil:
		w.late.Go(func() {
			select {
			case <-f.held:
			case <-w.ends.Done():
				return
			}
			late, cancel := context.WithTimeout(w.ends, *limit)
			defer cancel()
			send(late)
			f.arrived()
		})
		return none()
	case f.loseRequest:
		return none()
	case f.loseAnswer:
		done, cancel := context.WithTimeout(w.ends, *limit)
		defer cancel()
		send(done)
		return none()
	case f.twice:
		send(ctx)
	}
	answer, err = send(ctx)
	if f.slow > 0 {
		select {
		case <-time.After(f.slow):
		case <-ctx.Done():
		}
	}
	return answer, err
}

// newSent is a request, taken apart. What is no transaction puts nothing.
func newSent(method string, message []byte) sent {
	s := sent{method: method, txn: method == pb.KV_Txn_FullMethodName}
	switch method {
	case pb.KV_Txn_FullMethodName:
		s.body = &pb.TxnRequest{}
		proto.Unmarshal(message, s.body)
		s.puts = putsOf(s.body.Success)
		s.all = append(slices.Clone(s.puts), putsOf(s.body.Failure)...)
	case pb.KV_Range_FullMethodName:
		alone := &pb.RangeRequest{}
		proto.Unmarshal(message, alone)
		s.body = &pb.TxnRequest{Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestRange{RequestRange: alone}}}}
	}
	return s
}

func putsOf(ops []*pb.RequestOp) (keys []string) {
	for _, op := range ops {
		if p := op.GetRequestPut(); p != nil {
			keys = append(keys, string(p.Key))
		} else if inner := op.GetRequestTxn(); inner != nil {
			keys = append(keys, putsOf(slices.Concat(inner.Success, inner.Failure))...)
		}
	}
	return keys
}

func (w *wire) pass(ctx context.Context, method string, from grpc.ServerStream) error {
	ctx, end, ok := w.open(ctx)
	if !ok {
		return etcdtest.ErrBroken
	}
	defer end()
	if !w.passes(ctx) {
		return etcdtest.ErrBroken
	}
	if method == pb.Watch_Watch_FullMethodName || method == pb.Lease_LeaseKeepAlive_FullMethodName {
		f := w.fateOf(sent{method: method})
		if f.loseAnswer {
			w.notes(true)
			<-ctx.Done()
			return etcdtest.ErrBroken
		}
		err := w.Pass(ctx, method, &stallingCall{from, w, ctx, f.mute})
		if err != nil && ctx.Err() != nil {
			return etcdtest.ErrBroken
		}
		return err
	}
	in := &etcdtest.Message{}
	if err := from.RecvMsg(in); err != nil {
		return err
	}
	s := newSent(method, in.Bytes)
	md, _ := metadata.FromOutgoingContext(ctx)
	out, err := w.carry(ctx, w.fateOf(s), func(try context.Context) (*etcdtest.Message, error) {
		return w.Call(metadata.NewOutgoingContext(try, md), method, in)
	})
	if errors.Is(err, errLost) || !w.passes(ctx) || ctx.Err() != nil {
		return etcdtest.ErrBroken
	}
	if err != nil {
		return err
	}
	defer w.answers(s, out.Bytes)
	return from.SendMsg(out)
}

func confirms(message []byte) bool {
	r := &pb.WatchResponse{}
	return proto.Unmarshal(message, r) == nil && r.Created
}

// stallingCall is a stream that stops while the wire is stalled, and behind its confirmation if it is mute.
type stallingCall struct {
	grpc.ServerStream
	w    *wire
	ctx  context.Context
	mute bool
}

func (s *stallingCall) RecvMsg(m any) error {
	err := s.ServerStream.RecvMsg(m)
	if err == nil && !s.w.passes(s.ctx) {
		return errLost
	}
	return err
}

func (s *stallingCall) SendMsg(m any) error {
	switch {
	case !s.w.passes(s.ctx):
		return errLost
	case s.mute && !confirms(m.(*etcdtest.Message).Bytes):
		return nil
	case s.mute:
		s.w.notes(true)
	}
	return s.ServerStream.SendMsg(m)
}
