package etcdconn

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync/atomic"

	"google.golang.org/grpc/credentials"
)

// security makes TLS connections with the files as they are at that moment, so that rotated certificates need no
// restart.
type security struct {
	settings Settings
	kept     *Connections // nil if they are not renewed
}

func (s security) ClientHandshake(ctx context.Context, authority string,
	raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	files := s.settings.files() // before use: files that change meanwhile count as newer
	conf, err := s.settings.tlsConfig()
	if err != nil {
		return nil, nil, err
	}
	if s.settings.ServerName != "" {
		authority = s.settings.ServerName // otherwise gRPC would use the endpoint's host
	}
	var asked bool
	own := conf.GetClientCertificate
	conf.GetClientCertificate = func(r *tls.CertificateRequestInfo) (*tls.Certificate, error) {
		asked = true
		if own == nil {
			return &tls.Certificate{}, nil // none
		}
		return own(r)
	}
	conn, info, err := credentials.NewTLS(conf).ClientHandshake(ctx, authority, raw)
	if err == nil && asked {
		verdict := missingCertificate
		if own != nil {
			verdict = refusedCertificate
		}
		conn = &judged{Conn: conn, verdict: verdict}
	}
	if err == nil && s.kept != nil {
		conn = s.kept.keep(conn, files)
	}
	return conn, info, err
}

func (security) ServerHandshake(net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("the credentials of an etcd client cannot serve")
}

func (security) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "tls"}
}

func (s security) Clone() credentials.TransportCredentials { return s }

func (security) OverrideServerName(string) error { return nil }

// judged is a connection whose client certificate the server has yet to judge: in TLS 1.3 the client finishes first,
// and a refusal looks like any lost connection. So an error before the first response is reported as a refusal.
type judged struct {
	net.Conn
	verdict  string // the error if it is lost now
	accepted atomic.Bool
}

func (j *judged) Read(b []byte) (int, error) {
	n, err := j.Conn.Read(b)
	if n > 0 {
		j.accepted.Store(true)
	}
	return n, j.explain(err)
}

func (j *judged) Write(b []byte) (int, error) {
	n, err := j.Conn.Write(b)
	return n, j.explain(err)
}

func (j *judged) explain(err error) error {
	if err == nil || j.accepted.Load() {
		return err
	}
	return fmt.Errorf("%s: %w", j.verdict, err)
}

// The verdicts of judged. Errors of connections reach us as text only.
const (
	refusedCertificate = "etcd refuses the client certificate"
	missingCertificate = "etcd asks for a client certificate, and none is given"
)
