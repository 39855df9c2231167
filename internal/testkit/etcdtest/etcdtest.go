// Package etcdtest runs real etcd members for tests, with nothing installed but Go.
//
// Start runs one member inside the test's process. It is ready in a fraction of a second and can have TLS, users, a
// small quota or short-lived tokens. Cluster runs members as processes, which can be killed, paused and restarted.
// NewProxy simulates a bad network between a client and a member.
package etcdtest

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/clustermutex/unlocker/internal/testkit/etcdembed"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

// Server is one etcd member inside the test's process. It is stopped at the end of the test.
type Server struct {
	conf etcdembed.Config
	opts options
	stop func() // nil: it is stopped
	ca   *proctest.CA
}

// Start runs a cluster of one on a free port of 127.0.0.1, with its data in a temporary directory and without fsync.
func Start(t testing.TB, opts ...Option) *Server {
	t.Helper()
	s := &Server{opts: collect(opts)}
	if s.opts.tls {
		s.ca = proctest.NewCA(t)
	}
	s.startIn(t, t.TempDir())
	t.Cleanup(s.Stop)
	if s.opts.auth {
		enableAuth(t, s.Client(t))
		s.opts.users = true
	}
	return s
}

// startIn runs the member with its data in this directory, on addresses that nobody else has.
func (s *Server) startIn(t testing.TB, dir string) {
	t.Helper()
	for try := 0; ; try++ {
		s.conf = s.opts.config(t, s.ca, dir, "default")
		switch err := s.start(); {
		case err == nil:
			return
		case try == 3 || !portTaken(err):
			t.Fatal(err)
		}
	}
}

// Endpoint returns the member's URL for clients.
func (s *Server) Endpoint() string { return endpoint(s.conf) }

// CA returns the authority for the certificates of server and clients; nil without TLS.
func (s *Server) CA() *proctest.CA { return s.ca }

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

// Through is Client through this endpoint, of a proxy.
func (s *Server) Through(t testing.TB, endpoint string) *clientv3.Client {
	t.Helper()
	return s.opts.client(t, s.ca, endpoint)
}

// Stop stops the member and disconnects its clients. It does nothing if the member is stopped.
func (s *Server) Stop() {
	if s.stop != nil {
		s.stop()
		s.stop = nil
	}
}

// Restart runs the member again with the same data and ports, after stopping it if it is running.
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	s.Stop()
	eventually(t, "a restart", func(context.Context) error {
		err := s.start()
		if err != nil && !portTaken(err) { // the ports are free only a moment after it stopped
			t.Fatal(err)
		}
		return err
	})
}

func (s *Server) start() error {
	ctx, cancel := context.WithTimeout(context.Background(), proctest.Timeout)
	defer cancel()
	etcd, err := etcdembed.Start(ctx, s.conf)
	if err == nil {
		s.stop = etcd.Stop
	}
	return err
}

// listens returns nil when the member accepts connections. It may not be ready yet: requests wait.
func listens(conf etcdembed.Config) error {
	c, err := net.Dial("tcp", conf.Client)
	if err != nil {
		return err
	}
	return c.Close()
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

// Option changes the etcd that Start or Cluster runs.
type Option func(*options)

type options struct {
	tls, clientCerts, auth, fsync, gateway bool

	program  string
	users    bool // auth is on, so clients must log in
	quota    int64
	tokenTTL uint
}

// TLS serves clients with TLS, with a certificate of a CA made for the test.
func TLS() Option { return func(o *options) { o.tls = true } }

// ClientCerts is TLS in which clients need a certificate, too; CA().Issue makes them.
func ClientCerts() Option { return func(o *options) { o.tls, o.clientCerts = true, true } }

// Auth enables users and roles. Client then logs in as root; AddUser creates other users.
func Auth() Option { return func(o *options) { o.auth = true } }

// Quota limits the size of the store in bytes, so that a test can fill it (Fill). etcd rounds it up to whole pages.
func Quota(bytes int64) Option { return func(o *options) { o.quota = bytes } }

// TokenTTL is how many seconds a login token is valid after its last use.
func TokenTTL(seconds uint) Option { return func(o *options) { o.tokenTTL = seconds } }

// Fsync makes members wait for the disk before they answer, as in production.
func Fsync() Option { return func(o *options) { o.fsync = true } }

// Gateway serves etcd's JSON gateway, too, for clients without gRPC. etcd serves it by default; our tests do without.
func Gateway() Option { return func(o *options) { o.gateway = true } }

// Program runs the members of a Cluster with the etcd at this path, such as another version, until Upgrade. It cannot
// be combined with other options.
func Program(path string) Option { return func(o *options) { o.program = path } }

func collect(opts []Option) (o options) {
	for _, opt := range opts {
		opt(&o)
	}
	return o
}

func (o options) config(t testing.TB, ca *proctest.CA, dir, name string) etcdembed.Config {
	c := etcdembed.Config{
		Name: name, Dir: filepath.Join(dir, name), Client: proctest.FreeAddr(t),
		Peer:  proctest.FreeAddr(t),
		Quota: o.quota, TokenTTL: o.tokenTTL, Throwaway: true, Fsync: o.fsync,
		Gateway: o.gateway,
	}
	if ca != nil {
		c.Cert, c.Key = ca.Issue(t, name)
	}
	if o.clientCerts {
		c.ClientCA = ca.File()
	}
	return c
}

// client is configured like etcdconn: without hidden retries, except after a login that ended, and with keepalives that
// notice a dead connection.
func (o options) client(t testing.TB, ca *proctest.CA, endpoints ...string) *clientv3.Client {
	t.Helper()
	conf := clientv3.Config{
		Endpoints: endpoints, MaxUnaryRetries: 1, Logger: zap.NewNop(),
		DialTimeout: 5 * time.Second, DialKeepAliveTime: 10 * time.Second, DialKeepAliveTimeout: 5 * time.Second,
		DialOptions: []grpc.DialOption{reconnects(5 * time.Second)}, TLS: o.clientTLS(t, ca, RootUser),
	}
	if o.users {
		conf.Username = RootUser
		conf.Password = RootPassword
		conf.MaxUnaryRetries = 2
	}
	c, err := clientv3.New(conf)
	proctest.Must(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

func (o options) clientTLS(t testing.TB, ca *proctest.CA, commonName string) *tls.Config {
	if ca == nil {
		return nil
	}
	conf := &tls.Config{RootCAs: ca.Pool(), MinVersion: tls.VersionTLS12}
	if o.clientCerts {
		conf.Certificates = []tls.Certificate{ca.Pair(t, commonName)}
	}
	return conf
}

// launch runs a member as a process: etcdembed's, or another etcd.
func launch(c etcdembed.Config, program string) (*proctest.Process, error) {
	if program != "" {
		return proctest.Launch(exec.Command(program, flags(c)...))
	}
	cmd, err := MemberCommand(c)
	if err != nil {
		return nil, err
	}
	return proctest.Launch(cmd)
}

// MemberCommand returns a command that runs a member in this program again, which has to call Member first.
func MemberCommand(c etcdembed.Config) (*exec.Cmd, error) {
	config, err := json.Marshal(c)
	cmd := proctest.Self(etcdembed.MemberVariable, string(config))
	if program := etcdembed.Program(); program != "" {
		cmd.Path = program
	}
	return cmd, err
}

// flags returns the command line of an etcd for a Config, except for TLS, users and limits.
func flags(c etcdembed.Config) []string {
	client := "http://" + c.Client
	peer := "http://" + c.Peer
	return []string{
		"--name=" + c.Name, "--data-dir=" + c.Dir, "--initial-cluster=" + c.Cluster, "--unsafe-no-fsync",
		"--log-level=error",
		"--listen-client-urls=" + client, "--advertise-client-urls=" + client,
		"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer,
	}
}

// Put writes a key.
func Put(t testing.TB, etcd *clientv3.Client, key, value string, opts ...clientv3.OpOption) {
	t.Helper()
	_, err := etcd.Put(context.Background(), key, value, opts...)
	proctest.Must(t, err)
}

// Count returns the number of keys with this prefix.
func Count(t testing.TB, etcd *clientv3.Client, prefix string) int64 {
	t.Helper()
	r, err := etcd.Get(context.Background(), prefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
	proctest.Must(t, err)
	return r.Count
}

// Eventually waits until f returns true, for a change that no event announces. The test fails if that takes too long.
func Eventually(t testing.TB, what string, f func() bool) {
	t.Helper()
	proctest.Eventually(t, what, func() error {
		if !f() {
			return errors.New("it did not happen")
		}
		return nil
	})
}
