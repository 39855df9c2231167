package proctest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
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
	Must(t, err)
	cert, err := x509.ParseCertificate(der)
	Must(t, err)
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
// common name of a client is its user. Issuing the same name again replaces the files, as in a rotation. The
// certificate expires after twelve hours, or at the given time.
func (ca *CA) Issue(t testing.TB, commonName string, until ...time.Time) (cert, key string) {
	t.Helper()
	pair := ca.Pair(t, commonName, until...)
	cert = filepath.Join(ca.dir, commonName+".crt")
	key = filepath.Join(ca.dir, commonName+".key")
	der, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	Must(t, err)
	writePEM(t, cert, "CERTIFICATE", pair.Certificate[0])
	writePEM(t, key, "PRIVATE KEY", der)
	return cert, key
}

// Pair makes such a certificate without files.
func (ca *CA) Pair(t testing.TB, commonName string, until ...time.Time) tls.Certificate {
	t.Helper()
	key := newKey(t)
	notAfter := append(until, time.Now().Add(12*time.Hour))[0]
	template := &x509.Certificate{
		Subject:   pkix.Name{CommonName: commonName},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: notAfter,
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"localhost"},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, ca.cert, key.Public(), ca.key)
	Must(t, err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	Must(t, err)
	return key
}

func writePEM(t testing.TB, path, kind string, der []byte) {
	t.Helper()
	block := pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
	Must(t, os.WriteFile(path, block, 0o600))
}
