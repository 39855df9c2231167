package etcdconn_test

import (
	"context"
	cryptotls "crypto/tls"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/clustermutex/unlocker/internal/etcdconn"
	"github.com/clustermutex/unlocker/internal/etcdconn/anymember"
	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

func TestProveReportsWhatIsWrong(t *testing.T) {
	plain := start(t)
	secure := etcdtest.Start(t, etcdtest.TLS(), etcdtest.Auth())
	mutual := etcdtest.Start(t, etcdtest.ClientCerts(), etcdtest.Auth())
	secure.AddUser(t, "reader", "secret", "/m/", etcdtest.Read)
	mutual.AddUser(t, "reader", "", "/m/", etcdtest.Read)
	stranger := proctest.NewCA(t)
	silent := etcdtest.NewProxy(t, plain.Endpoint())
	silent.Stall()
	website := httptest.NewServer(nil)
	defer website.Close()
	cert, key := mutual.CA().Issue(t, "reader")
	nobody, nobodyKey := mutual.CA().Issue(t, "nobody")
	forged, forgedKey := stranger.Issue(t, "reader")
	ended := time.Now().Add(-time.Minute).UTC()
	expired, expiredKey := mutual.CA().Issue(t, "expired", ended)
	expiredEtcd := httptest.NewUnstartedServer(nil)
	expiredEtcd.TLS = &cryptotls.Config{Certificates: []cryptotls.Certificate{stranger.Pair(t, "etcd", ended)}}
	expiredEtcd.EnableHTTP2 = true
	expiredEtcd.StartTLS()
	defer expiredEtcd.Close()

	to := func(endpoint string) etcdconn.Settings { return etcdconn.Settings{Endpoints: []string{endpoint}} }
	tls := func(s *etcdtest.Server, user, password string) etcdconn.Settings {
		settings := as(s, user, password)
		settings.CACert = s.CA().File()
		return settings
	}
	mtls := func(cert, key string) etcdconn.Settings {
		s := tls(mutual, "", "")
		s.Cert = cert
		s.Key = key
		return s
	}
	otherName := tls(secure, "reader", "secret")
	otherName.ServerName = "elsewhere.example"
	hung := to(silent.Endpoint())
	hung.RequestTimeout = 100 * time.Millisecond
	strangers := tls(secure, "", "")
	strangers.CACert = stranger.File()
	toExpired := to(expiredEtcd.URL)
	toExpired.CACert = stranger.File()

	for name, c := range map[string]struct {
		settings etcdconn.Settings
		prefix   string
		class    etcdconn.Class
		says     string
	}{
		"right":             {to(plain.Endpoint()), "/m/", "", ""},
		"right password":    {tls(secure, "reader", "secret"), "/m/", "", ""},
		"right certificate": {mtls(cert, key), "/m/", "", ""},
		"nobody listens":    {to(proctest.FreeAddr(t)), "/m/", etcdconn.Unreachable, "connection refused"},
		"nobody answers":    {to(silent.Endpoint()), "/m/", etcdconn.Unreachable, "nothing answers"},
		"a member that hangs": {hung, "/m/", etcdconn.Unreachable,
			"the server at the etcd endpoint accepts connections and does not answer: it hangs, or is not etcd"},
		"name that is none": {to("no-such-host.invalid:2379"), "/m/", etcdconn.Unreachable,
			"no-such-host.invalid"},
		"something else listens": {to(website.URL), "/m/", etcdconn.Unreachable, "its first answer"},
		"TLS to a plain etcd": {to(strings.Replace(plain.Endpoint(), "http:", "https:", 1)), "/m/",
			etcdconn.Unreachable, "is it http://"},
		"plain to a TLS etcd": {to(strings.Replace(secure.Endpoint(), "https:", "http:", 1)), "/m/",
			etcdconn.Unreachable, "is it https://"},
		"authority that is unknown": {to(secure.Endpoint()), "/m/", etcdconn.Certificate,
			"give the right CA certificate"},
		"authority that is another":    {strangers, "/m/", etcdconn.Certificate, "give the right CA certificate"},
		"certificate for another name": {otherName, "/m/", etcdconn.Certificate, "not elsewhere.example"},
		"no client certificate":        {mtls("", ""), "/m/", etcdconn.Certificate, "asks for a client certificate"},
		"forged client certificate": {mtls(forged, forgedKey), "/m/", etcdconn.Certificate,
			"etcd refuses the client certificate: it is not signed by the authority that etcd trusts ("},
		"expired client certificate": {mtls(expired, expiredKey), "/m/", etcdconn.Certificate,
			"etcd refuses the client certificate: it expired at " + ended.Format(time.DateTime) + " UTC ("},
		"certificate of etcd that has expired": {toExpired, "/m/", etcdconn.Certificate,
			"etcd's certificate expired at " + ended.Format(time.DateTime) + " UTC ("},
		"certificate of no user": {mtls(nobody, nobodyKey), "/m/", etcdconn.Permission, "below /m/"},
		"no user":                {tls(secure, "", ""), "/m/", etcdconn.Credentials, "requires a login"},
		"wrong password": {tls(secure, "reader", "guess"), "/m/", etcdconn.Credentials,
			"rejects the user and password"},
		"user that is unknown": {tls(secure, "nobody", "guess"), "/m/", etcdconn.Credentials,
			"rejects the user and password"},
		"prefix without permission": {tls(secure, "reader", "secret"), "/", etcdconn.Permission, "below /:"},
	} {
		t.Run(name, func(t *testing.T) {
			most := proctest.Timeout
			if c.says == "nothing answers" {
				most = 300 * time.Millisecond
			}
			err := etcdconn.CheckAccess(limit(t, most), connect(t, c.settings), c.prefix)
			if class := etcdconn.Classify(err); class != c.class {
				t.Errorf("class %q, want %q", class, c.class)
			}
			sentence := etcdconn.Explain(err)
			if !strings.Contains(sentence, c.says) || strings.ContainsAny(sentence, "\n\"") {
				t.Errorf("it says %q, want one sentence with %q", sentence, c.says)
			}
			if strings.Contains(sentence, "rpc error") || strings.Contains(sentence, "guess") {
				t.Errorf("it says %q", sentence)
			}
		})
	}
}

func TestFullStoreIsExplained(t *testing.T) {
	server := start(t, etcdtest.Quota(4<<20))
	server.Fill(t, "fill")
	c := connect(t, as(server, "", ""))
	_, err := c.Put(limit(t, proctest.Timeout), "a", "1")
	if class := etcdconn.Classify(err); class != etcdconn.NoSpace {
		t.Errorf("%v is %q", err, class)
	}
	h := etcdconn.ReadHealth(limit(t, proctest.Timeout), c)
	if len(h.Alarms) != 1 || h.Alarms[0] != "NOSPACE" {
		t.Errorf("alarms are %v, want NOSPACE of a member", h.Alarms)
	}
}

func TestVersionsWithStaleReadsAreOutdated(t *testing.T) {
	t.Parallel()
	for version, outdated := range map[string]bool{
		"3.4.23": true, "3.5.27": true, "3.5.28": false, "3.6.0": true, "3.6.8": true, "3.6.9": false, "3.6.10": false,
		"3.6.0-rc.2": true, "3.7.0-rc.1": false, "3.10.0": false, "4.0.0": false, "2.3.8": true, "": false,
	} {
		if said := etcdconn.WhyOutdated(version); strings.Contains(said, version+" may") != outdated {
			t.Errorf("%q: %q", version, said)
		}
	}
}

// One member of two is no majority.
func TestLostMajorityIsExplained(t *testing.T) {
	server := start(t)
	never := "http://" + proctest.FreeAddr(t)
	c := connect(t, as(server, "", ""))
	all := connect(t, etcdconn.Settings{Endpoints: []string{server.Endpoint(), never}})
	health := func() etcdconn.Health { return etcdconn.ReadHealth(limit(t, proctest.Timeout), all) }
	if m := health().Members; m[0].Problem != "" || !m[0].Leader || !strings.Contains(m[1].Problem, "refused") {
		t.Errorf("the members are %+v", m)
	}
	_, err := c.MemberAdd(limit(t, proctest.Timeout), []string{never})
	proctest.Must(t, err)
	etcdtest.Eventually(t, "the loss of the leader", func() bool {
		class := etcdconn.Classify(etcdconn.CheckAccess(limit(t, 300*time.Millisecond), c, "/m/"))
		if class != etcdconn.NoLeader && class != etcdconn.Timeout && class != "" {
			t.Fatalf("a member without majority is %q", class)
		}
		return class == etcdconn.NoLeader
	})
	if m := health().Members; m[0].Problem != "" || m[0].Leader || m[1].Problem == "" {
		t.Errorf("without a leader, the members are %+v", m)
	}
}

func TestEtcdErrorsAreClassified(t *testing.T) {
	for err, class := range map[error]etcdconn.Class{
		rpctypes.ErrTooManyRequests: etcdconn.Overloaded,
		rpctypes.ErrCorrupt:         etcdconn.Corrupt,
		rpctypes.ErrRequestTooLarge: etcdconn.TooLarge,
		rpctypes.ErrLeaderChanged:   etcdconn.NoLeader,
		rpctypes.ErrTimeout:         etcdconn.Timeout,
		rpctypes.ErrStopped:         etcdconn.Unreachable,
		rpctypes.ErrGRPCNoSpace:     etcdconn.NoSpace,
		rpctypes.ErrCompacted:       etcdconn.Other,
		status.Error(codes.Unavailable, "keepalive ping failed to receive ACK within timeout"): etcdconn.Timeout,
	} {
		if got := etcdconn.Classify(err); got != class {
			t.Errorf("%v is %q, want %q", err, got, class)
		}
	}
}

func TestCertificateMayBeExpiredByEtcdsClockAlone(t *testing.T) {
	err := status.Error(codes.Unavailable, `connection error: desc = "error reading server preface: etcd refuses the `+
		`client certificate: it is not signed by the authority that etcd trusts: remote error: tls: expired certificate"`)
	if got := etcdconn.Explain(err); got != "etcd refuses the client certificate: it has expired by etcd's clock" {
		t.Error(got)
	}
}

// To return one key of a range etcd counts all others: 50 ms with 100,000 locks.
func TestProveIsNotCountedAsARequest(t *testing.T) {
	t.Parallel()
	var reply *pb.RangeResponse
	answered := func(ctx context.Context, method string, req, resp any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker,
		opts ...grpc.CallOption) error {
		err := invoke(ctx, method, req, resp, conn, opts...)
		if r, isRange := resp.(*pb.RangeResponse); isRange {
			reply = r
		}
		return err
	}
	c := connect(t, as(etcdtest.Start(t), "", ""), grpc.WithChainUnaryInterceptor(answered))
	works(t, c)
	if err := etcdconn.CheckAccess(limit(t, proctest.Timeout), c, "/m/"); err != nil || reply == nil ||
		reply.Count != 0 {
		t.Errorf("error %v, answer %v", err, reply)
	}
}

// Requests go to the members in turn; one that is cut off from the others keeps what it is sent for seconds, and a
// learner refuses it. A read that waits for a leader is refused when there is one.
func TestRequestsSkipAMemberWithoutALeader(t *testing.T) {
	t.Parallel()
	var refusals []error
	members := func(ctx context.Context, method string, req, resp any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker,
		opts ...grpc.CallOption) (err error) {
		if len(refusals) == 0 {
			return invoke(ctx, method, req, resp, conn, opts...)
		}
		err, refusals = refusals[0], refusals[1:]
		sent, _ := metadata.FromOutgoingContext(ctx)
		if err == rpctypes.ErrGRPCNoLeader && sent[rpctypes.MetadataRequireLeaderKey] == nil {
			<-ctx.Done()
		}
		return err
	}
	c := connect(t, as(etcdtest.Start(t), "", ""), grpc.WithChainUnaryInterceptor(members))
	without, changed := rpctypes.ErrGRPCNoLeader, rpctypes.ErrGRPCLeaderChanged
	refusals = []error{rpctypes.ErrGRPCNotSupportedForLearner, without}
	works(t, c)
	refusals = []error{without, changed}
	proctest.Must(t, etcdconn.CheckAccess(limit(t, proctest.Timeout), c, "/m/"))
	refusals = []error{without, without, without, changed}
	_, err := c.Get(limit(t, proctest.Timeout), "/m/a")
	proctest.Must(t, err)
	refusals = slices.Repeat([]error{changed}, 9)
	if _, err := anymember.NewClient(c).Get(limit(t, proctest.Timeout), "/m/a"); err == nil || len(refusals) != 4 {
		t.Errorf("asked of each member: %v, left of 9 refusals: %d", err, len(refusals))
	}
	refusals = []error{changed}
	if _, err := c.Put(limit(t, proctest.Timeout), "/m/a", "2"); etcdconn.Classify(err) != etcdconn.NoLeader {
		t.Errorf("a write that may have been done, and be done once more: %v", err)
	}
}
