// Package etcdtest runs real etcd members for tests, with nothing installed but Go.
//
// Start runs one member inside the test's process. It is ready in a fraction of a second and can have TLS, users, a
// small quota or short-lived tokens. Cluster runs members as processes, which can be killed, paused and restarted.
// NewProxy simulates a bad network between a client and a member.
package etcdtest

import (
	"context"
	"crypto/tls"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/testkit/etcdembed"
)

// timeout is how long anything here may take before the test fails: long, because a busy machine with -race is slow.
const timeout = 2 * time.Minute

// Server is one etcd member inside the test's process. It is stopped at the end of the test.
type Server struct {
	conf etcdembed.Config
	opts options
	etcd *etcdembed.Server
	ca   *CA
}

// Start runs a cluster of one on a free port of 127.0.0.1, with its data in a temporary directory and without fsync.
func Start(t testing.TB, opts ...Option) *Server {
	t.Helper()
	s := &Server{opts: collect(opts)}
	dir := t.TempDir()
	if s.opts.tls {
		s.ca = NewCA(t)
	}
	for try := 0; ; try++ {
		s.conf = s.opts.config(t, s.ca, dir, "default")
		err := s.start()
		if err == nil {
			break
		}
		if try == 3 || !portTaken(err) {
			t.Fatal(err)
		}
	}
	t.Cleanup(s.Stop)
	if s.opts.auth {
		enableAuth(t, s.Client(t))
		s.opts.users = true
	}
	return s
}

// Endpoint returns the member's URL for clients.
func (s *Server) Endpoint() string { return endpoint(s.conf) }

// CA returns the authority for the certificates of server and clients; nil without TLS.
func (s *Server) CA() *CA { return s.ca }

// ClientTLS returns the TLS configuration of a client: it trusts the server and, if the server asks for certificates,
// has one for name. It is nil without TLS.
func (s *Server) ClientTLS(t testing.TB, commonName string) *tls.Config {
	t.Helper()
	return s.opts.clientTLS(t, s.ca, commonName)
}

// Dir returns the member's data directory.
func (s *Server) Dir() string { return s.conf.Dir }

// Client returns a client with all permissions, which is closed at the end of the test.
func (s *Server) Client(t testing.TB) *clientv3.Client {
	t.Helper()
	return s.opts.client(t, s.ca, s.Endpoint())
}

// Stop stops the member and disconnects its clients. It does nothing if the member is stopped.
func (s *Server) Stop() {
	if s.etcd != nil {
		s.etcd.Stop()
		s.etcd = nil
	}
}

// Restart runs the member again with the same data and ports, after stopping it if it is running.
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	s.Stop()
	eventually(t, "a restart", func(context.Context) error {
		err := s.start()
		if err != nil && !portTaken(err) { // by itself: the ports are free only a moment after it stopped
			t.Fatal(err)
		}
		return err
	})
}

func (s *Server) start() (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	s.etcd, err = etcdembed.Start(ctx, s.conf)
	return err
}

func endpoint(c etcdembed.Config) string {
	if c.Cert != "" {
		return "https://" + c.Client
	}
	return "http://" + c.Client
}

// portTaken reports whether another process has taken the free address meanwhile.
func portTaken(err error) bool {
	return strings.Contains(fmt.Sprint(err), syscall.EADDRINUSE.Error())
}
