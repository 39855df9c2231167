package etcdconn

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"

	"github.com/clustermutex/unlocker/internal/etcdconn/anymember"
)

// New returns a client without waiting for etcd: an unreachable etcd is no error. More dial options add observers, such
// as [RequestMetrics].
func New(s Settings, log zerolog.Logger, more ...grpc.DialOption) (*clientv3.Client, error) {
	if err := s.Check(); err != nil {
		return nil, err
	}
	scheme, endpoints, _ := s.endpoints()
	s.warn(log, scheme)
	client, err := clientv3.New(clientv3.Config{
		Endpoints: endpoints,
		Logger:    zap.NewNop(), // it warns of every failed call, which the caller knows better
		// The caller decides whether to resend a transaction that was not answered: only the caller can distinguish its
		// own effect from another's. 1 means "send once"; 0 would be the client's default of 100.
		MaxUnaryRetries:      1,
		DialTimeout:          s.connectTimeout(),
		DialKeepAliveTime:    keepaliveTime,
		DialKeepAliveTimeout: keepaliveTimeout,
		// etcd treats pings on a connection without a stream as an attack: after three it closes the connection, and
		// gRPC doubles the keepalive time for good. Without pings, the first call finds a dead idle connection.
		PermitWithoutStream: false,
		DialOptions:         append(s.dialOptions(scheme), more...),
	})
	if err != nil {
		return nil, fmt.Errorf("create the etcd client: %w", err)
	}
	return client, nil
}

func (s Settings) dialOptions(scheme string) []grpc.DialOption {
	login := newLogin(s)
	options := []grpc.DialOption{
		grpc.WithConnectParams(grpc.ConnectParams{
			// gRPC's default pause between attempts grows to two minutes, far too long once etcd is back.
			Backoff: backoff.Config{BaseDelay: 200 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2,
				MaxDelay: 3 * time.Second},
			MinConnectTimeout: s.connectTimeout(),
		}),
		grpc.WithChainUnaryInterceptor(login.unary, retryOnMembers),
		grpc.WithChainStreamInterceptor(login.stream),
	}
	if scheme == "https" {
		options = append(options, grpc.WithTransportCredentials(tlsCredentials{credentials.NewTLS(nil), s}))
	}
	return options
}

// retryOnMembers sends a request to another member if one refuses it because it has no leader or is a learner.
func retryOnMembers(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, send grpc.UnaryInvoker,
	opts ...grpc.CallOption) error {
	_, reads := req.(*pb.RangeRequest)
	again := func(err error) bool { return anymember.IsRefusal(reads, err) }
	return anymember.Retry(ctx, again, func(ctx context.Context) error {
		return send(ctx, method, req, reply, conn, opts...)
	})
}

// warn logs settings that are insecure.
func (s Settings) warn(log zerolog.Logger, scheme string) {
	if s.InsecureSkipVerify {
		log.Warn().Msg("etcd's certificates are not verified: anyone on the network path can read and change the locks")
	}
	if scheme == "http" && s.User != "" {
		log.Warn().Str("user", s.User).Msg("the etcd password is sent without TLS: anyone on the network path can " +
			"read it")
	}
}

// Error says why etcd cannot be used, in one sentence.
type Error struct {
	Class    Class
	sentence string
	err      error
}

func (e *Error) Error() string { return e.sentence }

func (e *Error) Unwrap() error { return e.err }

// CheckAccess checks with one linearizable read that the client can read the prefix. It fails with an *Error: at once
// if no endpoint accepts a connection or etcd refuses, at the end of ctx if nothing answers.
//
// It asks for a future revision: etcd checks the user, the range and that it has a leader, and then refuses. To answer
// with even a single key it would count all others below the prefix, which takes 50 ms of CPU for 100,000 locks.
func CheckAccess(ctx context.Context, c *clientv3.Client, prefix string) error {
	// Not through c: its calls wait for a connection until ctx ends, and then hide why there was none.
	_, err := pb.NewKVClient(c.ActiveConnection()).Range(clientv3.WithRequireLeader(ctx), &pb.RangeRequest{
		Key: []byte(prefix), RangeEnd: []byte(clientv3.GetPrefixRangeEnd(prefix)), Revision: math.MaxInt64,
	})
	if err == nil || errors.Is(rpctypes.Error(err), rpctypes.ErrFutureRev) {
		return nil
	}
	class, sentence := explain(err)
	switch class {
	case Permission:
		sentence = fmt.Sprintf("the etcd user may not read the keys below %s: its role needs read permission "+
			"for exactly that prefix", prefix)
	case Unreachable, Certificate, Timeout:
		sentence += " (" + strings.Join(c.Endpoints(), ", ") + ")"
	}
	return &Error{class, sentence, err}
}

// ClockOffsets asks all endpoints concurrently for their time: the Date header of /version, which needs no permission.
// It returns how far the clocks of those that answered are ahead of ours, exact to half a second plus half the round
// trip.
func ClockOffsets(ctx context.Context, s Settings) (offsets []time.Duration) {
	_, endpoints, err := s.endpoints()
	if err != nil {
		return nil
	}
	security, err := s.tlsConfig()
	if err != nil {
		return nil
	}
	transport := &http.Transport{TLSClientConfig: security, DisableKeepAlives: true}
	defer transport.CloseIdleConnections()
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, endpoint := range endpoints {
		wg.Go(func() {
			if offset, err := clockOffset(ctx, transport, endpoint); err == nil {
				mu.Lock()
				defer mu.Unlock()
				offsets = append(offsets, offset)
			}
		})
	}
	wg.Wait()
	return offsets
}

func clockOffset(ctx context.Context, transport http.RoundTripper, endpoint string) (time.Duration, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, endpoint+"/version", nil)
	if err != nil {
		return 0, err
	}
	asked := time.Now()
	answer, err := transport.RoundTrip(request)
	if err != nil {
		return 0, err
	}
	took := time.Since(asked)
	defer answer.Body.Close()
	io.Copy(io.Discard, io.LimitReader(answer.Body, 4096))
	there, err := http.ParseTime(answer.Header.Get("Date"))
	// The date is truncated to the second, so add half of one; it was written halfway between request and response.
	return there.Add(time.Second / 2).Sub(asked.Add(took / 2)), err
}
