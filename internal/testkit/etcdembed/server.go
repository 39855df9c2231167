//go:build !etcdprocess

package etcdembed

import (
	"context"
	"errors"
	"fmt"
	"net/url"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
	"google.golang.org/grpc"
)

// Program returns the path of the program that runs members; "" is this one.
func Program() string { return "" }

// Server is a running member.
type Server struct {
	etcd   *embed.Etcd
	serves chan *grpc.Server
	grpc   *grpc.Server
}

// Start runs a member and returns when it serves clients; in a larger cluster that is once there is a leader. ctx
// bounds the waiting, not the life of the member.
func Start(ctx context.Context, c Config) (*Server, error) {
	s := &Server{serves: make(chan *grpc.Server, 1)}
	conf := c.embed()
	conf.ServiceRegister = func(g *grpc.Server) { s.serves <- g }
	e, err := embed.StartEtcd(conf)
	if err != nil {
		return nil, fmt.Errorf("start etcd on %s: %w", c.Client, err)
	}
	s.etcd = e
	if err := s.ready(ctx); err != nil {
		s.Stop()
		return nil, fmt.Errorf("start etcd on %s: %w", c.Client, err)
	}
	return s, nil
}

func (s *Server) ready(ctx context.Context) error {
	select {
	case s.grpc = <-s.serves:
		return nil
	case err := <-s.etcd.Err():
		return err
	case <-s.Done():
		return errors.New("it stopped by itself")
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Done returns a channel that is closed when the member has ended, for whatever reason.
func (s *Server) Done() <-chan struct{} { return s.etcd.Server.StopNotify() }

// Stop ends the member and disconnects its clients. A graceful stop would wait more than five seconds for their watches
// to end.
func (s *Server) Stop() {
	if s.grpc != nil {
		s.grpc.Stop()
	}
	s.etcd.Close()
}

func (c Config) embed() *embed.Config {
	scheme := "http"
	if c.Cert != "" {
		scheme = "https"
	}
	client := []url.URL{{Scheme: scheme, Host: c.Client}}
	peer := []url.URL{{Scheme: "http", Host: c.Peer}}

	conf := embed.NewConfig()
	if c.Name != "" {
		conf.Name = c.Name
	}
	conf.Dir = c.Dir
	conf.ListenClientUrls = client
	conf.AdvertiseClientUrls = client
	conf.ListenPeerUrls = peer
	conf.AdvertisePeerUrls = peer
	conf.InitialCluster = c.Cluster
	if c.Cluster == "" {
		conf.InitialCluster = conf.InitialClusterFromName(conf.Name)
		conf.TickMs = 10
		conf.ElectionMs = 100 // there are no other voters to wait for
	}
	if c.Joins {
		conf.ClusterState = embed.ClusterStateFlagExisting
	}
	conf.ClientTLSInfo = transport.TLSInfo{CertFile: c.Cert, KeyFile: c.Key}
	if c.ClientCA != "" {
		conf.ClientTLSInfo.TrustedCAFile = c.ClientCA
		conf.ClientTLSInfo.ClientCertAuth = true
	}
	conf.QuotaBackendBytes = c.Quota
	conf.EnableGRPCGateway = c.Gateway
	if c.TokenTTL != 0 {
		conf.AuthTokenTTL = c.TokenTTL
	}
	if c.Throwaway {
		conf.UnsafeNoFsync = !c.Fsync
		conf.BcryptCost = 4
	}
	log := c.Log
	if log == nil {
		log = zap.NewNop()
	}
	conf.ZapLoggerBuilder = embed.NewZapLoggerBuilder(log)
	return conf
}
