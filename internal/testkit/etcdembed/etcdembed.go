// Package etcdembed runs an etcd member in this process. It is the only package that imports etcd's server: tests use
// it through etcdtest, and mutexdev is the only program that contains it, so that the production binaries stay small.
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

// Config describes a member. It can be passed as JSON, so that another process can run it.
type Config struct {
	Name   string // default "default"
	Dir    string // data directory; created if missing, kept
	Client string // host:port to serve clients on
	Peer   string // host:port to serve the other members on
	// Cluster is etcd's --initial-cluster, name=url,name=url. Empty: a cluster of one.
	Cluster string
	Joins   bool // the cluster is running, and this member has been added to it

	Cert, Key string // files; if given, clients are served with TLS
	ClientCA  string // file; if given, clients need a certificate signed by it

	Quota    int64 // bytes that the store may grow to; 0 is etcd's default
	TokenTTL uint  // seconds that an unused login token lives; 0 is etcd's default
	// Throwaway trades the safety of the data for speed: no fsync, cheap password hashes. For tests only.
	Throwaway bool
	Fsync     bool // wait for the disk even with Throwaway
	Gateway   bool // serve the JSON gateway, too, as etcd does by default

	Log *zap.Logger `json:"-"` // nil is silence
}

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
