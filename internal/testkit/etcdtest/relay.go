package etcdtest

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

// Relay is in front of one member of etcd and lets its owner decide what happens to each call. Unlike Proxy it knows
// where a call begins.
type Relay struct {
	Addr string
	to   *grpc.ClientConn
}

// Message is a gRPC message that is passed on unchanged.
type Message struct{ Bytes []byte }

// verbatim passes messages on without decoding them.
type verbatim struct{}

func (verbatim) Name() string                    { return "proto" }
func (verbatim) Marshal(v any) ([]byte, error)   { return v.(*Message).Bytes, nil }
func (verbatim) Unmarshal(b []byte, v any) error { v.(*Message).Bytes = b; return nil }

// ErrBroken is the error that a gRPC client gets when its connection breaks.
var ErrBroken = status.Error(codes.Unavailable, "error reading from server: EOF")

// Handler is what a relay does with a call. The context has the metadata to send along.
type Handler func(ctx context.Context, method string, from grpc.ServerStream) error

// NewRelay serves in front of the member at endpoint until the end of the test: gRPC by call, and everything else by
// plain, on one port.
func NewRelay(t testing.TB, endpoint string, call Handler, plain http.Handler) *Relay {
	t.Helper()
	target, err := url.Parse(endpoint)
	proctest.Must(t, err)
	to, err := grpc.NewClient("passthrough:///"+target.Host, grpc.WithTransportCredentials(insecure.NewCredentials()),
		reconnects(time.Second), grpc.WithDefaultCallOptions(grpc.ForceCodec(verbatim{})))
	proctest.Must(t, err)
	g := grpc.NewServer(grpc.ForceServerCodec(verbatim{}),
		grpc.UnknownServiceHandler(func(_ any, from grpc.ServerStream) error {
			method, _ := grpc.MethodFromServerStream(from)
			return call(passedOn(from.Context()), method, from)
		}))
	server := &http.Server{Protocols: &http.Protocols{},
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc") {
				g.ServeHTTP(w, r)
				return
			}
			plain.ServeHTTP(w, r)
		})}
	server.Protocols.SetHTTP1(true)
	server.Protocols.SetUnencryptedHTTP2(true)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	proctest.Must(t, err)
	var serves sync.WaitGroup
	serves.Go(func() { server.Serve(l) })
	t.Cleanup(func() { server.Close(); to.Close(); serves.Wait() })
	return &Relay{"http://" + l.Addr().String(), to}
}

// reconnects has a client connect again soon after an outage. It gives up an attempt to connect after least.
func reconnects(least time.Duration) grpc.DialOption {
	return grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: 50 * time.Millisecond,
		Multiplier: 1.5, MaxDelay: 300 * time.Millisecond}, MinConnectTimeout: least})
}

// passedOn sends along the metadata of a call, except what belongs to its connection.
func passedOn(ctx context.Context) context.Context {
	md, _ := metadata.FromIncomingContext(ctx)
	md = md.Copy()
	for name := range md {
		if strings.HasPrefix(name, ":") || name == "content-type" || name == "user-agent" ||
			strings.HasPrefix(name, "grpc-") || name == "te" {
			delete(md, name)
		}
	}
	return metadata.NewOutgoingContext(ctx, md)
}

// Call sends the call to the member.
func (r *Relay) Call(ctx context.Context, method string, in *Message) (out *Message, err error) {
	out = &Message{}
	err = r.to.Invoke(ctx, method, in, out)
	return out, err
}

// Pass copies both directions of a call until it ends.
func (r *Relay) Pass(ctx context.Context, method string, from grpc.ServerStream) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	to, err := r.to.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method)
	if err != nil {
		return err
	}
	go func() {
		for {
			m := &Message{}
			if err := from.RecvMsg(m); err != nil {
				if errors.Is(err, io.EOF) {
					to.CloseSend()
				} else {
					cancel()
				}
				return
			}
			if to.SendMsg(m) != nil {
				return
			}
		}
	}()
	for {
		m := &Message{}
		if err := to.RecvMsg(m); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		if err := from.SendMsg(m); err != nil {
			return err
		}
	}
}
