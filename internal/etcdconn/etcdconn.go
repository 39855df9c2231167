package etcdconn

import (
	"fmt"
	"time"

	"github.com/rs/zerolog"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
)

// New returns a client without waiting for etcd: an unreachable etcd is no error. The client's own messages go to log.
// More dial options add observers, such as Requests and Connections.
func New(s Settings, log zerolog.Logger, more ...grpc.DialOption) (*clientv3.Client, error) {
	if err := s.Check(); err != nil {
		return nil, err
	}
	s = s.withDefaults()
	targets, _ := s.targets()
	var endpoints []string
	for _, t := range targets {
		endpoints = append(endpoints, t.String())
	}
	s.warn(log, targets[0].scheme)
	client, err := clientv3.New(clientv3.Config{
		Endpoints: endpoints,
		Logger:    zapLogger(log),
		// Whether to resend a transaction that was not answered is up to the caller: only the caller can tell its own
		// effect from another's. 1 means "send once"; 0 would be the client's default of 100.
		MaxUnaryRetries:      1,
		DialTimeout:          s.DialTimeout,
		DialKeepAliveTime:    s.KeepaliveTime,
		DialKeepAliveTimeout: s.KeepaliveTimeout,
		// etcd treats pings on a connection without a stream as an attack: after three it closes the connection, and
		// gRPC doubles the keepalive time for good. Without pings, the first call finds a dead idle connection.
		PermitWithoutStream: false,
		DialOptions:         append(s.dialOptions(targets[0].scheme), more...),
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
			MinConnectTimeout: s.DialTimeout,
		}),
		grpc.WithChainUnaryInterceptor(login.unary),
		grpc.WithChainStreamInterceptor(login.stream),
	}
	if scheme == "https" {
		options = append(options, grpc.WithTransportCredentials(security{settings: s}))
	}
	return options
}

func (s Settings) warn(log zerolog.Logger, scheme string) {
	if s.InsecureSkipVerify {
		log.Warn().Msg("etcd's certificates are not verified: anyone on the network path can read and change the locks")
	}
	if scheme == "http" && s.User != "" {
		log.Warn().Str("user", s.User).Msg("the etcd password is sent without TLS: anyone on the network path can " +
			"read it")
	}
}
