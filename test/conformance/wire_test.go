//go:build conformance

package conformance

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
)

// wire stands before one member of etcd and does to single requests what a bad network does. It serves the JSON gateway
// and gRPC on one port, so that the same case is made for clients of both kinds.
type wire struct {
	*etcdtest.Relay
	target *url.URL
	plain  *httputil.ReverseProxy
	late   sync.WaitGroup // requests that are under way although nobody waits for them
	ends   context.Context

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

// sent is a request on its way.
type sent struct {
	path string   // of the gateway, like /v3/kv/txn
	puts []string // keys that a transaction puts if its compares hold
	all  []string // and if not
	txn  bool
	body *pb.TxnRequest // of a transaction; of a read that is one by itself, too
}

// takes reports whether it is a transaction that takes a lock.
func (s sent) takes() bool {
	for _, key := range s.puts {
		if strings.HasSuffix(key, "/uuid") {
			return true
		}
	}
	return false
}

// fate is what becomes of a request.
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

// newWire runs a wire to the member at endpoint until the end of the test.
func newWire(t testing.TB, endpoint string) *wire {
	t.Helper()
	target, err := url.Parse(endpoint)
	if err != nil {
		t.Fatal(err)
	}
	ends, end := context.WithCancel(context.Background())
	w := &wire{target: target, ends: ends, streams: map[int]context.CancelFunc{}}
	w.plain = httputil.NewSingleHostReverseProxy(target)
	w.plain.FlushInterval = -1 // a watch is a stream
	w.plain.ErrorHandler = func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) }
	transport := http.DefaultTransport.(*http.Transport).Clone()
	w.plain.Transport = transport
	t.Cleanup(func() {
		w.heal()
		end()
		w.late.Wait()
		transport.CloseIdleConnections()
	})
	w.Relay = etcdtest.NewRelay(t, endpoint, w.grpc, http.HandlerFunc(w.http))
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

// cutOff ends all connections, and new requests at once, until heal.
func (w *wire) cutOff() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut = true
	for _, end := range w.streams {
		end()
	}
}

// heal ends stall and cutOff.
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

// notes what was answered.
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

// answers notes what was answered to a request.
func (w *wire) answers(s sent, read func(proto.Message) error) {
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
		read(answer)
	} else if read(alone) == nil {
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
func carry[A any](ctx context.Context, w *wire, f fate, send func(context.Context) (A, error)) (answer A, err error) {
	none := func() (A, error) {
		if !f.reset {
			<-ctx.Done()
		}
		return answer, errLost
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

// http passes on a request to the gateway.
func (w *wire) http(rw http.ResponseWriter, r *http.Request) {
	ctx, end, ok := w.open(r.Context())
	if !ok {
		panic(http.ErrAbortHandler)
	}
	defer end()
	body, err := io.ReadAll(r.Body)
	if err != nil || !w.passes(ctx) {
		panic(http.ErrAbortHandler)
	}
	s := newSent(r.URL.Path, inJSON(body))
	if s.path == "/v3/watch" || s.path == "/v3/lease/keepalive" {
		f := w.fateOf(s)
		if f.loseAnswer {
			w.notes(true)
			<-ctx.Done()
			panic(http.ErrAbortHandler)
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		w.plain.ServeHTTP(&stalling{ResponseWriter: rw, w: w, ctx: ctx, mute: f.mute}, r.WithContext(ctx))
		return
	}
	type whole struct {
		status int
		header http.Header
		body   []byte
	}
	got, err := carry(ctx, w, w.fateOf(s), func(ctx context.Context) (whole, error) {
		req := r.Clone(ctx)
		req.RequestURI = ""
		req.URL.Scheme = w.target.Scheme
		req.URL.Host = w.target.Host
		req.Body = io.NopCloser(bytes.NewReader(body))
		resp, err := w.plain.Transport.RoundTrip(req)
		if err != nil {
			return whole{}, err
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		return whole{resp.StatusCode, resp.Header, text}, err
	})
	if err != nil || !w.passes(ctx) {
		panic(http.ErrAbortHandler)
	}
	defer w.answers(s, inJSON(got.body))
	for name, values := range got.header {
		rw.Header()[name] = values
	}
	rw.WriteHeader(got.status)
	rw.Write(got.body)
}

// stalling is a stream's answer that stops while the wire is stalled, and behind its confirmation if it is mute.
type stalling struct {
	http.ResponseWriter
	w    *wire
	ctx  context.Context
	mute bool
}

func (s *stalling) Write(b []byte) (int, error) {
	if !s.w.passes(s.ctx) {
		return 0, errLost
	}
	if s.mute {
		for line := range bytes.Lines(b) {
			if bytes.Contains(line, []byte(`"created":true`)) {
				s.w.notes(true)
				s.ResponseWriter.Write(line)
			}
		}
		return len(b), nil
	}
	return s.ResponseWriter.Write(b)
}

func (s *stalling) Unwrap() http.ResponseWriter { return s.ResponseWriter }

// newSent is a request, whose message read takes apart.
func newSent(path string, read func(proto.Message) error) sent {
	s := sent{path: path, txn: path == "/v3/kv/txn"}
	switch path {
	case "/v3/kv/txn":
		s.body = &pb.TxnRequest{}
		read(s.body) // what is none puts nothing
		s.puts = putsOf(s.body.Success)
		s.all = append(slices.Clone(s.puts), putsOf(s.body.Failure)...)
	case "/v3/kv/range":
		alone := &pb.RangeRequest{}
		read(alone)
		s.body = &pb.TxnRequest{Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestRange{RequestRange: alone}}}}
	}
	return s
}

func inJSON(text []byte) func(proto.Message) error {
	return func(m proto.Message) error {
		return protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(text, m)
	}
}

func inProto(message []byte) func(proto.Message) error {
	return func(m proto.Message) error { return proto.Unmarshal(message, m) }
}

// putsOf are the keys that operations put, in any branch.
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

// grpc passes on a call.
func (w *wire) grpc(ctx context.Context, method string, from grpc.ServerStream) error {
	ctx, end, ok := w.open(ctx)
	if !ok {
		return etcdtest.ErrBroken
	}
	defer end()
	if !w.passes(ctx) {
		return etcdtest.ErrBroken
	}
	if method == pb.Watch_Watch_FullMethodName || method == pb.Lease_LeaseKeepAlive_FullMethodName {
		f := w.fateOf(sent{path: gatewayPath(method)})
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
	s := newSent(gatewayPath(method), inProto(in.Bytes))
	md, _ := metadata.FromOutgoingContext(ctx)
	out, err := carry(ctx, w, w.fateOf(s), func(try context.Context) (*etcdtest.Message, error) {
		return w.Call(metadata.NewOutgoingContext(try, md), method, in)
	})
	if errors.Is(err, errLost) || !w.passes(ctx) {
		return etcdtest.ErrBroken
	}
	if err != nil {
		return err
	}
	defer w.answers(s, inProto(out.Bytes))
	return from.SendMsg(out)
}

// gatewayPath is where the gateway has the method, as far as a case asks for it.
func gatewayPath(method string) string {
	return map[string]string{
		pb.KV_Txn_FullMethodName: "/v3/kv/txn", pb.KV_Range_FullMethodName: "/v3/kv/range",
		pb.Lease_LeaseGrant_FullMethodName: "/v3/lease/grant", pb.Lease_LeaseRevoke_FullMethodName: "/v3/lease/revoke",
		pb.Auth_Authenticate_FullMethodName: "/v3/auth/authenticate", pb.Watch_Watch_FullMethodName: "/v3/watch",
	}[method]
}

// confirms reports whether a message of a watch confirms it.
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
