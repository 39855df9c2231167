// Package etcdembed runs an etcd member inside this process. It is the only place that knows etcd's server: tests reach
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

// Config says which member to run. It survives a trip through JSON, so that another process can be told to run it.
type Config struct {
	Name   string // default "default"
	Dir    string // of the data; created if missing, kept
	Client string // host:port to serve clients on
	Peer   string // host:port to serve the other members on
	// Cluster is etcd's --initial-cluster, name=url,name=url. Empty makes a cluster of one.
	Cluster string
	Joins   bool // the cluster runs already, and has been told of this new member

	Cert, Key string // files; with them clients are served with TLS
	ClientCA  string // file; with it clients need a certificate that it signed

	Quota         int64 // bytes that the store may grow to; 0 is etcd's default
	TokenTTL      uint  // seconds that an unused token of a user lives; 0 is etcd's default
	SnapshotCount uint64
	// Throwaway trades the safety of the data for speed: no fsync, cheap password hashes. For tests only.
	Throwaway bool
	Fsync     bool // with Throwaway: all the same, wait for the disk

	Log *zap.Logger `json:"-"` // nil is silence
}

// Server is a running member.
type Server struct {
	etcd   *embed.Etcd
	serves chan *grpc.Server
	grpc   *grpc.Server
}

// Start runs a member and returns when it serves clients, which a member of a larger cluster does once there is a
// leader. The end of ctx ends the waiting, but not a member that was returned.
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

// Done is closed when the member has ended, asked or not.
func (s *Server) Done() <-chan struct{} { return s.etcd.Server.StopNotify() }

// Stop ends the member and cuts its clients off. A polite stop would wait more than five seconds for their watches to
// end.
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
		conf.ElectionMs = 100 // nobody else votes: do not wait a second for it
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
	conf.EnableGRPCGateway = false
	if c.TokenTTL != 0 {
		conf.AuthTokenTTL = c.TokenTTL
	}
	if c.SnapshotCount != 0 {
		conf.SnapshotCount = c.SnapshotCount
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
