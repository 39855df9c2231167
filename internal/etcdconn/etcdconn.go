package etcdconn

import (
	"fmt"
	"time"

	"github.com/rs/zerolog"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
)

// New makes a client without waiting for etcd: an unreachable one is no error. What the client notices by itself goes
// to log. More options are for those who look on, see Requests and Connections.
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
		// The second sending of a transaction whose first was not answered is the callers' business: only they can tell
		// their own effect from another's. 1 is "send once"; 0 would be the client's default of 100.
		MaxUnaryRetries:      1,
		DialTimeout:          s.DialTimeout,
		DialKeepAliveTime:    s.KeepaliveTime,
		DialKeepAliveTimeout: s.KeepaliveTimeout,
		// etcd takes pings on a connection without a stream for an attack: after three it closes the connection, and
		// gRPC doubles the keepalive time for good. Without them a dead idle connection is found by the first call on
		// it.
		PermitWithoutStream: false,
		DialOptions:         append(s.dialOptions(targets[0].scheme), more...),
	})
	if err != nil {
		return nil, fmt.Errorf("make an etcd client: %w", err)
	}
	return client, nil
}

func (s Settings) dialOptions(scheme string) []grpc.DialOption {
	login := newLogin(s)
	options := []grpc.DialOption{
		grpc.WithConnectParams(grpc.ConnectParams{
			// gRPC's own pause between attempts grows to two minutes: too long to be away after etcd is back.
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
		log.Warn().Msg("the certificates of etcd are not verified: anybody in between can read and change the locks")
	}
	if scheme == "http" && s.User != "" {
		log.Warn().Str("user", s.User).Msg("the etcd password is sent without TLS: anybody in between can read it")
	}
}
