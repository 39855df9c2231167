// Package etcdtest gives tests a real etcd, with nothing installed but Go.
//
// Start runs one member inside the test's process: ready in a fraction of a second, with TLS, users, a small quota or a
// short token life where asked. Cluster runs members as processes of their own, which can be killed, paused and
// restarted. NewProxy stands in for a bad network between a client and a member.
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

	"github.com/clustermutex/unlocker/internal/etcdembed"
)

// patience is how long anything here may take before the test fails: long, as a busy machine with -race is slow.
const patience = 30 * time.Second

// Server is one etcd member inside the test's process. It ends with the test.
type Server struct {
	conf etcdembed.Config
	opts options
	etcd *etcdembed.Server
	ca   *CA
}

// Start runs a cluster of one on a free port of 127.0.0.1, with its data in a temporary directory and no fsync.
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

// Endpoint is the member's URL for clients.
func (s *Server) Endpoint() string { return endpoint(s.conf) }

// CA signed the server's certificate and signs those of clients. It is nil without TLS.
func (s *Server) CA() *CA { return s.ca }

// ClientTLS is what a client needs to trust the server, and to be trusted under a name where the server asks for
// certificates. It is nil without TLS.
func (s *Server) ClientTLS(t testing.TB, commonName string) *tls.Config {
	t.Helper()
	return s.opts.clientTLS(t, s.ca, commonName)
}

// Dir is where the member keeps its data.
func (s *Server) Dir() string { return s.conf.Dir }

// Client is a client with all rights, closed at the end of the test.
func (s *Server) Client(t testing.TB) *clientv3.Client {
	t.Helper()
	return s.opts.client(t, s.ca, s.Endpoint())
}

// Stop ends the member and cuts its clients off. A stopped one stays stopped.
func (s *Server) Stop() {
	if s.etcd != nil {
		s.etcd.Stop()
		s.etcd = nil
	}
}

// Restart runs the member again with the same data on the same ports, stopping it first where it still runs.
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	s.Stop()
	eventually(t, "a restart", func(context.Context) error {
		err := s.start()
		if err != nil && !portTaken(err) { // by this very one, which lets go of its ports a moment after its end
			t.Fatal(err)
		}
		return err
	})
}

func (s *Server) start() (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
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

// portTaken reports whether another process was quicker to listen on a free address.
func portTaken(err error) bool {
	return strings.Contains(fmt.Sprint(err), syscall.EADDRINUSE.Error())
}
