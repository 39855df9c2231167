package etcdconn

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"

	"github.com/clustermutex/unlocker/internal/certificate"
)

// tlsCredentials makes each TLS connection with the current files, so that rotated certificates need no restart.
type tlsCredentials struct {
	credentials.TransportCredentials // of TLS: what does not depend on the files

	settings Settings
}

func (s tlsCredentials) ClientHandshake(ctx context.Context, authority string,
	raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
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
		refusal := missingCertificate
		if own != nil {
			refusal = refusedCertificate + ": " + s.settings.whyRefused()
		}
		conn = &unconfirmedConn{Conn: conn, refusal: refusal}
	}
	return conn, info, explainExpiry(err)
}

// explainExpiry returns a clearer error if etcd's certificate has expired.
func explainExpiry(err error) error {
	invalid, ok := errors.AsType[x509.CertificateInvalidError](err)
	if now := time.Now(); ok && invalid.Reason == x509.Expired && now.After(invalid.Cert.NotAfter) {
		return errors.New(expiredServer + certificate.Expiry(invalid.Cert, now))
	}
	return err
}

func (s tlsCredentials) Clone() credentials.TransportCredentials { return s }

// unconfirmedConn is a connection whose client certificate the server has not accepted yet: in TLS 1.3 the client
// finishes first, and a refusal looks like any lost connection. So an error before the first response is reported as a
// refusal.
type unconfirmedConn struct {
	net.Conn
	refusal  string // the text of the error if the connection is lost now
	accepted atomic.Bool
}

func (j *unconfirmedConn) Read(b []byte) (int, error) {
	n, err := j.Conn.Read(b)
	if n > 0 {
		j.accepted.Store(true)
	}
	return n, j.explain(err)
}

func (j *unconfirmedConn) Write(b []byte) (int, error) {
	n, err := j.Conn.Write(b)
	return n, j.explain(err)
}

func (j *unconfirmedConn) explain(err error) error {
	if err == nil || j.accepted.Load() {
		return err
	}
	return fmt.Errorf("%s: %w", j.refusal, err)
}

// The refusals of an unconfirmedConn. Errors of connections reach us as text only.
const (
	refusedCertificate = "etcd refuses the client certificate"
	missingCertificate = "etcd asks for a client certificate, and none is given"
	unknownAuthority   = "it is not signed by the authority that etcd trusts"
)

// expiredServer begins the error about a certificate of etcd that has expired.
const expiredServer = "etcd's certificate "

// whyRefused returns why etcd refuses the client certificate, as far as its file tells.
func (s Settings) whyRefused() string {
	if c := s.ClientCertificate(); c != nil && time.Now().After(c.NotAfter) {
		return "it " + certificate.Expiry(c, time.Now())
	}
	return unknownAuthority
}

// login gets a token for the user's password when a call needs one, and a new one when etcd refuses the old.
//
// etcd's client does this too. But it gets its first token when it is created, which fails while etcd is away; and with
// a single attempt per call it fails the first call after a token expired. A call with a refused token was certainly
// not executed, so sending it again is safe.
type login struct {
	settings Settings
	slot     chan struct{} // occupied while a call gets a token
	current  atomic.Pointer[authToken]
}

// authToken is a token of etcd and its number, from 1. The token is empty if etcd has no authentication.
type authToken struct {
	token  string
	number int
}

func newLogin(s Settings) *login {
	l := &login{settings: s, slot: make(chan struct{}, 1)}
	l.current.Store(&authToken{})
	return l
}

func (l *login) unary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker,
	opts ...grpc.CallOption) error {
	if l.settings.User == "" || method == pb.Auth_Authenticate_FullMethodName {
		return invoke(ctx, method, req, reply, cc, opts...)
	}
	t, err := l.tokenAfter(ctx, cc, 0, opts)
	if err != nil {
		return err
	}
	if err = invoke(t.addTo(ctx), method, req, reply, cc, opts...); !isTokenRefused(err) {
		return err
	}
	if t, err = l.tokenAfter(ctx, cc, t.number, opts); err != nil {
		return err
	}
	return invoke(t.addTo(ctx), method, req, reply, cc, opts...)
}

// stream gets a fresh token first: a refusal would show only inside the stream.
func (l *login) stream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string,
	open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	if l.settings.User == "" {
		return open(ctx, desc, cc, method, opts...)
	}
	t, err := l.tokenAfter(ctx, cc, l.current.Load().number, opts)
	if err != nil {
		return nil, err
	}
	return open(t.addTo(ctx), desc, cc, method, opts...)
}

// tokenAfter returns a token with a number above the given one, and logs in if there is none yet.
func (l *login) tokenAfter(ctx context.Context, cc *grpc.ClientConn, number int,
	opts []grpc.CallOption) (authToken, error) {
	if t := l.current.Load(); t.number > number {
		return *t, nil
	}
	select {
	case l.slot <- struct{}{}:
		defer func() { <-l.slot }()
	case <-ctx.Done():
		return authToken{}, ctx.Err()
	}
	t := *l.current.Load()
	if t.number > number {
		return t, nil
	}
	token, err := l.authenticate(ctx, cc, opts)
	if err != nil {
		return authToken{}, err
	}
	t = authToken{token, t.number + 1}
	l.current.Store(&t)
	return t, nil
}

// authenticate uses the options of the call that needs the token, so that it waits for a connection as that call would.
func (l *login) authenticate(ctx context.Context, cc *grpc.ClientConn, opts []grpc.CallOption) (string, error) {
	password, err := l.settings.ReadPassword()
	if err != nil {
		return "", err
	}
	request := &pb.AuthenticateRequest{Name: l.settings.User, Password: password}
	answer, err := pb.NewAuthClient(cc).Authenticate(ctx, request, opts...)
	if errors.Is(rpctypes.Error(err), rpctypes.ErrAuthNotEnabled) {
		return "", nil
	}
	return answer.GetToken(), err
}

func (t authToken) addTo(ctx context.Context) context.Context {
	if t.token == "" {
		return ctx
	}
	return metadata.AppendToOutgoingContext(ctx, rpctypes.TokenFieldNameGRPC, t.token)
}

// isTokenRefused reports whether etcd rejected the request unread, because it does not know the token.
func isTokenRefused(err error) bool {
	err = rpctypes.Error(err)
	return errors.Is(err, rpctypes.ErrInvalidAuthToken) || errors.Is(err, rpctypes.ErrAuthOldRevision) ||
		errors.Is(err, rpctypes.ErrUserEmpty)
}
