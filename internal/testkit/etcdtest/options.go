package etcdtest

import (
	"crypto/tls"
	"path/filepath"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/clustermutex/unlocker/internal/testkit/etcdembed"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

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

func (o options) config(t testing.TB, ca *CA, dir, name string) etcdembed.Config {
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

// client is configured like etcdconn: without hidden retries, and with keepalives that notice a dead connection.
func (o options) client(t testing.TB, ca *CA, endpoints ...string) *clientv3.Client {
	t.Helper()
	conf := clientv3.Config{
		Endpoints: endpoints, MaxUnaryRetries: 1, Logger: zap.NewNop(),
		DialTimeout: 5 * time.Second, DialKeepAliveTime: 10 * time.Second, DialKeepAliveTimeout: 5 * time.Second,
		TLS: o.clientTLS(t, ca, RootUser),
	}
	if o.users {
		conf.Username = RootUser
		conf.Password = RootPassword
	}
	c, err := clientv3.New(conf)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func (o options) clientTLS(t testing.TB, ca *CA, commonName string) *tls.Config {
	if ca == nil {
		return nil
	}
	conf := &tls.Config{RootCAs: ca.Pool(), MinVersion: tls.VersionTLS12}
	if o.clientCerts {
		conf.Certificates = []tls.Certificate{ca.issue(t, commonName)}
	}
	return conf
}
