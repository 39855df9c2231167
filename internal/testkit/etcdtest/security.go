package etcdtest

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

// CA is a certificate authority that lives as long as a test.
type CA struct {
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// NewCA makes a certificate authority with its own key.
func NewCA(t testing.TB) *CA {
	t.Helper()
	key := newKey(t)
	template := &x509.Certificate{
		Subject:   pkix.Name{CommonName: "test CA"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage: x509.KeyUsageCertSign, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	proctest.Must(t, err)
	cert, err := x509.ParseCertificate(der)
	proctest.Must(t, err)
	ca := &CA{dir: t.TempDir(), cert: cert, key: key}
	writePEM(t, ca.File(), "CERTIFICATE", der)
	return ca
}

// File returns the path of the authority's certificate.
func (ca *CA) File() string { return filepath.Join(ca.dir, "ca.crt") }

// Pool returns a pool with only this authority.
func (ca *CA) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(ca.cert)
	return pool
}

// Issue writes a certificate for 127.0.0.1 and localhost, for servers and clients, and returns its files. To etcd, the
// common name of a client is its user. Issuing the same name again replaces the files, as in a rotation.
func (ca *CA) Issue(t testing.TB, commonName string) (cert, key string) {
	t.Helper()
	pair := ca.issue(t, commonName)
	cert = filepath.Join(ca.dir, commonName+".crt")
	key = filepath.Join(ca.dir, commonName+".key")
	der, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	proctest.Must(t, err)
	writePEM(t, cert, "CERTIFICATE", pair.Certificate[0])
	writePEM(t, key, "PRIVATE KEY", der)
	return cert, key
}

func (ca *CA) issue(t testing.TB, commonName string) tls.Certificate {
	t.Helper()
	key := newKey(t)
	template := &x509.Certificate{
		Subject:   pkix.Name{CommonName: commonName},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(12 * time.Hour),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"localhost"},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, ca.cert, key.Public(), ca.key)
	proctest.Must(t, err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	proctest.Must(t, err)
	return key
}

func writePEM(t testing.TB, path, kind string, der []byte) {
	t.Helper()
	block := pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
	proctest.Must(t, os.WriteFile(path, block, 0o600))
}

// The user with all permissions if Auth is on.
const (
	RootUser     = "root"
	RootPassword = "root-password"
)

// Right is what a user may do.
type Right = clientv3.PermissionType

// The rights of a user on a prefix.
const (
	Read      = Right(clientv3.PermRead)
	ReadWrite = Right(clientv3.PermReadWrite)
)

// AddUser adds a user with one right on one prefix. Without a password, it can log in only with a client certificate of
// that name.
func (s *Server) AddUser(t testing.TB, name, password, prefix string, right Right) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), proctest.Timeout)
	defer cancel()
	c := s.Client(t)
	_, userErr := c.UserAddWithOptions(ctx, name, password, &clientv3.UserAddOptions{NoPassword: password == ""})
	_, roleErr := c.RoleAdd(ctx, name)
	_, permErr := c.RoleGrantPermission(ctx, name, prefix, clientv3.GetPrefixRangeEnd(prefix), right)
	_, grantErr := c.UserGrantRole(ctx, name, name)
	if err := errors.Join(userErr, roleErr, permErr, grantErr); err != nil {
		t.Fatalf("add user %s: %v", name, err)
	}
}

func enableAuth(t testing.TB, c *clientv3.Client) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), proctest.Timeout)
	defer cancel()
	_, userErr := c.UserAdd(ctx, RootUser, RootPassword)
	_, roleErr := c.UserGrantRole(ctx, RootUser, "root")
	_, authErr := c.AuthEnable(ctx)
	if err := errors.Join(userErr, roleErr, authErr); err != nil {
		t.Fatalf("enable auth: %v", err)
	}
}

// Fill writes below prefix until etcd is out of space and raises the NOSPACE alarm; Drain makes it writable again. The
// server needs a Quota of a few MiB.
func (s *Server) Fill(t testing.TB, prefix string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), proctest.Timeout)
	defer cancel()
	c := s.Client(t)
	megabyte := strings.Repeat("x", 1<<20)
	for i := range 200 {
		_, err := c.Put(ctx, fmt.Sprintf("%s%d", prefix, i), megabyte)
		if errors.Is(err, rpctypes.ErrNoSpace) {
			return
		}
		if err != nil {
			t.Fatalf("fill the store: %v", err)
		}
	}
	t.Fatal("fill the store: it takes 200 MiB; does it have a quota?")
}

// Drain deletes what Fill wrote and disarms the alarm.
func (s *Server) Drain(t testing.TB, prefix string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), proctest.Timeout)
	defer cancel()
	c := s.Client(t)
	gone, err := c.Delete(ctx, prefix, clientv3.WithPrefix())
	if err != nil {
		t.Fatalf("drain the store: %v", err)
	}
	_, compactErr := c.Compact(ctx, gone.Header.Revision, clientv3.WithCompactPhysical())
	_, defragErr := c.Defragment(ctx, s.Endpoint())
	_, alarmErr := c.AlarmDisarm(ctx, &clientv3.AlarmMember{})
	if err := errors.Join(compactErr, defragErr, alarmErr); err != nil {
		t.Fatalf("drain the store: %v", err)
	}
}
