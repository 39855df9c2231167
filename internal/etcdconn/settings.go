// Package etcdconn turns settings into a connection to etcd, and its errors into sentences.
//
// New never waits for etcd and fails only for invalid settings, so that a daemon stays up while etcd is away.
// CheckAccess makes one read and says which of endpoint, certificate, password and permission is wrong. A call without
// a deadline on its context waits forever while etcd is unreachable: every caller has to set one.
package etcdconn

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/clustermutex/unlocker/internal/certificate"
)

// Settings describe how to reach etcd. A zero duration means its default.
type Settings struct {
	// Endpoints are host:port, http://host:port or https://host:port, all with the same scheme. Without a scheme, TLS
	// is used if any of the TLS settings is given.
	Endpoints []string

	CACert             string // file; without it the system's authorities are trusted
	Cert, Key          string // files of the client certificate, read again for every connection
	ServerName         string // to expect in the server's certificate instead of the endpoint's host
	InsecureSkipVerify bool   // trust any server

	User         string
	PasswordFile string // read again whenever etcd asks for the password
	Password     string // instead of the file

	RequestTimeout time.Duration // for one call; callers put it on their contexts
}

const (
	dialTimeout      = 5 * time.Second  // for one connection to one endpoint
	keepaliveTime    = 10 * time.Second // of silence before a connection is pinged: gRPC and etcd allow nothing below
	keepaliveTimeout = 5 * time.Second  // for the answer to that ping
)

// Defaults returns the settings for a local etcd.
func Defaults() Settings {
	return Settings{Endpoints: []string{"127.0.0.1:2379"}, RequestTimeout: 5 * time.Second}
}

// Check returns one sentence about what cannot work: contradictions, and files that cannot be used.
func (s Settings) Check() error {
	if _, _, err := s.endpoints(); err != nil {
		return err
	}
	if _, err := s.tlsConfig(); err != nil {
		return err
	}
	return s.checkUser()
}

func (s Settings) checkUser() error {
	switch {
	case s.Password != "" && s.PasswordFile != "":
		return errors.New("the etcd password is given twice: as itself and as a file (--etcd.password-file)")
	case s.User == "" && s.PasswordFile != "":
		return errors.New("an etcd password file is given, but no user: give --etcd.user")
	case s.User == "" && s.Password != "":
		return errors.New("an etcd password is given, but no user: give --etcd.user")
	case s.User == "":
		return nil
	}
	_, err := s.ReadPassword()
	return err
}

// connectTimeout is for one attempt to connect to one member; a hanging one must not take a request's whole time.
func (s Settings) connectTimeout() time.Duration {
	return min(dialTimeout, cmp.Or(s.RequestTimeout, dialTimeout))
}

// ReadPassword returns the current password: files change when secrets are rotated.
func (s Settings) ReadPassword() (string, error) {
	if s.PasswordFile == "" {
		if s.Password == "" {
			return "", fmt.Errorf("the etcd user %q has no password: give --etcd.password-file", s.User)
		}
		return s.Password, nil
	}
	b, err := os.ReadFile(s.PasswordFile)
	if err != nil {
		return "", fmt.Errorf("read the etcd password (--etcd.password-file): %w", err)
	}
	password := strings.TrimRight(string(b), "\r\n")
	if password == "" {
		return "", fmt.Errorf("the etcd password file %s (--etcd.password-file) is empty", s.PasswordFile)
	}
	return password, nil
}

// tlsConfig returns nil if the endpoints do not use TLS.
func (s Settings) tlsConfig() (*tls.Config, error) {
	scheme, _, err := s.endpoints()
	if err != nil || scheme == "http" {
		return nil, err
	}
	conf := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: s.ServerName,
		InsecureSkipVerify: s.InsecureSkipVerify}
	if conf.RootCAs, err = s.authorities(); err != nil {
		return nil, err
	}
	switch {
	case s.Cert == "" && s.Key == "":
		return conf, nil
	case s.Key == "":
		return nil, fmt.Errorf("the etcd client certificate %s is given without its key: give --etcd.key", s.Cert)
	case s.Cert == "":
		return nil, fmt.Errorf("the etcd client key %s is given without its certificate: give --etcd.cert", s.Key)
	}
	if _, err := s.certificate(nil); err != nil {
		return nil, err
	}
	conf.GetClientCertificate = s.certificate
	return conf, nil
}

// authorities returns nil, which means the system's, if no file is given.
func (s Settings) authorities() (*x509.CertPool, error) {
	if s.CACert == "" {
		return nil, nil
	}
	pem, err := os.ReadFile(s.CACert)
	if err != nil {
		return nil, fmt.Errorf("read the etcd CA certificate (--etcd.cacert): %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("the etcd CA file %s (--etcd.cacert) holds no certificate in PEM form", s.CACert)
	}
	return pool, nil
}

func (s Settings) certificate(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	pair, err := tls.LoadX509KeyPair(s.Cert, s.Key)
	if err != nil {
		return nil, fmt.Errorf("load the etcd client certificate %s (--etcd.cert) and key %s (--etcd.key): %w",
			s.Cert, s.Key, err)
	}
	return &pair, nil
}

// ClientCertificate returns the client certificate as its file has it now; nil if there is none that can be read.
func (s Settings) ClientCertificate() *x509.Certificate { return certificate.ReadFile(s.Cert) }

// endpoints parses the endpoints, and returns their scheme, http or https, and their URLs. All have the same scheme:
// gRPC uses one kind of connection for all members.
func (s Settings) endpoints() (scheme string, urls []string, err error) {
	if len(s.Endpoints) == 0 {
		return "", nil, errors.New("no etcd endpoint is given")
	}
	for i, endpoint := range s.Endpoints {
		given, host, err := parseEndpoint(strings.TrimSpace(endpoint))
		if err != nil {
			return "", nil, err
		}
		if i > 0 && given != scheme {
			return "", nil, fmt.Errorf("the etcd endpoints %s and %s differ in their scheme: give all of them the same",
				s.Endpoints[0], endpoint)
		}
		scheme = given
		urls = append(urls, host)
	}
	switch setting := s.tlsSetting(); {
	case scheme == "http" && setting != "":
		return "", nil, fmt.Errorf("the etcd endpoint http://%s does not use TLS, but %s is given: write https:// or "+
			"leave that out", urls[0], setting)
	case scheme == "" && setting != "":
		scheme = "https"
	case scheme == "":
		scheme = "http"
	}
	for i := range urls {
		urls[i] = scheme + "://" + urls[i]
	}
	return scheme, urls, nil
}

// tlsSetting names one of the given settings that need TLS, "" if there is none.
func (s Settings) tlsSetting() string {
	switch {
	case s.CACert != "":
		return "a CA certificate (--etcd.cacert)"
	case s.Cert != "":
		return "a client certificate (--etcd.cert)"
	case s.Key != "":
		return "a client key (--etcd.key)"
	case s.ServerName != "":
		return "a server name (--etcd.server-name)"
	case s.InsecureSkipVerify:
		return "leave to skip the verification of certificates (--etcd.insecure-skip-tls-verify)"
	}
	return ""
}

// parseEndpoint returns the scheme of an endpoint, empty if it has none, and its host:port.
func parseEndpoint(endpoint string) (scheme, address string, err error) {
	if strings.Contains(endpoint, "@") { // not to be printed
		return "", "", errors.New("an etcd endpoint must not contain a user or password: " +
			"give them as user and password")
	}
	address = endpoint
	if given, _, found := strings.Cut(endpoint, "://"); found {
		scheme = given
		u, err := url.Parse(endpoint)
		switch {
		case err != nil:
			return "", "", fmt.Errorf("the etcd endpoint %q is not a URL", endpoint)
		case scheme != "http" && scheme != "https":
			return "", "", fmt.Errorf("the etcd endpoint %q has the scheme %q: use http or https", endpoint, scheme)
		case strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "":
			return "", "", fmt.Errorf("the etcd endpoint %q is more than scheme, host and port", endpoint)
		}
		address = u.Host
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil || host == "" {
		return "", "", fmt.Errorf("the etcd endpoint %q is not of the form host:port", endpoint)
	}
	if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
		return "", "", fmt.Errorf("the etcd endpoint %q has no valid port (etcd's own is 2379)", endpoint)
	}
	return scheme, address, nil
}
