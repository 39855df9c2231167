package etcdtest

import (
	"crypto/tls"
	"path/filepath"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/clustermutex/unlocker/internal/etcdembed"
	"github.com/clustermutex/unlocker/internal/proctest"
)

// Option changes the etcd that Start or Cluster runs.
type Option func(*options)

type options struct {
	tls, clientCerts, auth, fsync bool

	program   string
	users     bool // auth is on by now: clients need to say who they are
	quota     int64
	tokenTTL  uint
	snapshots uint64
}

// TLS serves clients with TLS, by a certificate of a CA made for the test.
func TLS() Option { return func(o *options) { o.tls = true } }

// ClientCerts is TLS where clients need a certificate too, as CA().Issue makes them.
func ClientCerts() Option { return func(o *options) { o.tls, o.clientCerts = true, true } }

// Auth turns users and roles on. Client is the user root then; AddUser makes others.
func Auth() Option { return func(o *options) { o.auth = true } }

// Quota limits the store to so many bytes, so that a test can fill it (Fill). etcd rounds up to some pages.
func Quota(bytes int64) Option { return func(o *options) { o.quota = bytes } }

// TokenTTL is the life in seconds of the token that a user's password buys, while it is not used.
func TokenTTL(seconds uint) Option { return func(o *options) { o.tokenTTL = seconds } }

// SnapshotCount is the number of changes after which a member writes a snapshot and forgets its log.
func SnapshotCount(n uint64) Option { return func(o *options) { o.snapshots = n } }

// Fsync makes members wait for the disk before they answer, as in production.
func Fsync() Option { return func(o *options) { o.fsync = true } }

// Program runs the members of a Cluster with the etcd at this path, of another version for instance, until Upgrade. Of
// the other options it knows none.
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
		Quota: o.quota, TokenTTL: o.tokenTTL, SnapshotCount: o.snapshots, Throwaway: true, Fsync: o.fsync,
	}
	if ca != nil {
		c.Cert, c.Key = ca.Issue(t, name)
	}
	if o.clientCerts {
		c.ClientCA = ca.File()
	}
	return c
}

// client is configured as etcdconn does it: no hidden second sending of a request, a dead connection is noticed.
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
