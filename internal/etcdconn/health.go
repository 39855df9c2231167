package etcdconn

import (
	"cmp"
	"context"
	"crypto/x509"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	"github.com/clustermutex/unlocker/internal/certificate"
)

// Health is what the members report about themselves.
type Health struct {
	Members []Member // in the order of the endpoints
	Alarms  []string // the kinds of alarms that members have raised: NOSPACE or CORRUPT
	// Problem says why the alarms are unknown, "" if they are known.
	Problem string
}

// Member is one endpoint's answer.
type Member struct {
	Endpoint    string
	Version     string
	Leader      bool // this member leads
	Learner     bool
	Size        int64  // bytes of the store's file
	Quota       int64  // bytes that Size may grow to; 0 if the member is too old to report it
	Problem     string // why there is no answer, "" if there is one
	WhyOutdated string // why the version should not be used, "" if it can be
	// Certificate is that of the member's chain which expires first; nil without TLS or answer.
	Certificate *x509.Certificate
}

// WhyOutdated returns one sentence that says why a version of etcd should not be used; empty for others, and for an
// unreadable version.
func WhyOutdated(version string) string {
	var major, minor, patch int
	if n, _ := fmt.Sscanf(version, "%d.%d.%d", &major, &minor, &patch); n < 3 || major > 3 || minor > 6 {
		return ""
	}
	fixedIn, known := map[int]int{5: 28, 6: 9}[minor]
	if known && patch >= fixedIn {
		return ""
	}
	return "etcd " + version + " may answer reads with outdated data: use at least 3.5.28, 3.6.9 or 3.7"
}

// ExplainAlarm returns one sentence about what an alarm of this kind means.
func ExplainAlarm(kind string) string {
	switch kind {
	case "NOSPACE":
		return Explain(rpctypes.ErrNoSpace)
	case "CORRUPT":
		return Explain(rpctypes.ErrCorrupt)
	}
	return "etcd has raised the alarm " + kind
}

// ReadHealth asks all endpoints concurrently. It never fails as a whole: each part has its own Problem.
func ReadHealth(ctx context.Context, c *clientv3.Client) Health {
	endpoints := c.Endpoints()
	h := Health{Members: make([]Member, len(endpoints))}
	var wg sync.WaitGroup
	for i, e := range endpoints {
		wg.Go(func() { h.Members[i] = askMember(ctx, c, e) })
	}
	wg.Go(func() { h.Alarms, h.Problem = Alarms(ctx, c) })
	wg.Wait()
	return h
}

// askMember does not use c.Status, which waits for a member that is away until ctx ends, and then hides why.
func askMember(ctx context.Context, c *clientv3.Client, endpoint string) Member {
	conn, err := c.Dial(endpoint)
	if err != nil {
		return Member{Endpoint: endpoint, Problem: Explain(err)}
	}
	defer conn.Close()
	m := ReadMember(ctx, conn)
	m.Endpoint = endpoint
	return m
}

// ReadMember returns the answer of a member behind the connection.
func ReadMember(ctx context.Context, conn *grpc.ClientConn) (m Member) {
	var from peer.Peer
	s, err := pb.NewMaintenanceClient(conn).Status(ctx, &pb.StatusRequest{}, grpc.Peer(&from))
	if err != nil {
		m.Problem = Explain(err)
		return m
	}
	m.Version = s.Version
	m.WhyOutdated = WhyOutdated(s.Version)
	m.Leader = s.Leader == s.Header.MemberId
	m.Learner = s.IsLearner
	m.Size = s.DbSize
	m.Quota = s.DbSizeQuota
	m.Certificate = certificateOf(from)
	return m
}

// certificateOf returns the certificate that expires first of the chain that a peer was trusted for.
func certificateOf(p peer.Peer) *x509.Certificate {
	tls, ok := p.AuthInfo.(credentials.TLSInfo)
	switch {
	case !ok:
		return nil
	case len(tls.State.VerifiedChains) > 0:
		return certificate.First(tls.State.VerifiedChains[0])
	}
	return certificate.First(tls.State.PeerCertificates)
}

// Alarms returns the kinds of alarms that members have raised, or a sentence that says why they are unknown.
func Alarms(ctx context.Context, c *clientv3.Client) (kinds []string, problem string) {
	list, err := c.AlarmList(clientv3.WithRequireLeader(ctx))
	if err != nil {
		return nil, Explain(err)
	}
	for _, a := range list.Alarms {
		if a.Alarm != pb.AlarmType_NONE {
			kinds = append(kinds, strings.ToUpper(a.Alarm.String()))
		}
	}
	return kinds, ""
}

// healthEvery is how often the health of etcd is checked.
const healthEvery = 15 * time.Second

// HealthMonitor checks the health of etcd, for metrics and pages. No decision depends on it.
type HealthMonitor struct {
	etcd           *clientv3.Client
	timeout        time.Duration
	log            zerolog.Logger
	last           atomic.Pointer[Health]
	warnedOutdated map[string]bool // by warning about an outdated version
}

// NewHealthMonitor returns a monitor whose results are unknown before Run. timeout bounds each check.
func NewHealthMonitor(etcd *clientv3.Client, timeout time.Duration, log zerolog.Logger) *HealthMonitor {
	return &HealthMonitor{etcd: etcd, timeout: timeout, log: log, warnedOutdated: map[string]bool{}}
}

// Run checks until ctx ends.
func (h *HealthMonitor) Run(ctx context.Context) error { return every(ctx, healthEvery, h.check) }

func (h *HealthMonitor) check(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, h.timeout)
	defer cancel()
	now := ReadHealth(ctx, h.etcd)
	if last := h.last.Load(); last != nil {
		for i := range now.Members {
			now.Members[i].Certificate = cmp.Or(now.Members[i].Certificate, last.Members[i].Certificate)
		}
	}
	h.last.Store(&now)
	for _, m := range now.Members {
		if m.WhyOutdated != "" && !h.warnedOutdated[m.WhyOutdated] {
			h.warnedOutdated[m.WhyOutdated] = true
			h.log.Warn().Str("endpoint", m.Endpoint).Msg(m.WhyOutdated)
		}
	}
}

// Last returns the result of the last check, nil before the first one.
func (h *HealthMonitor) Last() *Health { return h.last.Load() }

// ServerCertificate returns the certificate with which the first member of etcd can no longer be used; nil if none is
// known. It is kept when it has expired, and the member is no longer trusted.
func (h *HealthMonitor) ServerCertificate() *x509.Certificate {
	last := h.last.Load()
	if last == nil {
		return nil
	}
	var all []*x509.Certificate
	for _, m := range last.Members {
		all = append(all, m.Certificate)
	}
	return certificate.First(all)
}

// Alarms returns the kinds of alarms that etcd has raised, and whether they are known.
func (h *HealthMonitor) Alarms() (kinds []string, known bool) {
	last := h.last.Load()
	if last == nil || last.Problem != "" {
		return nil, false
	}
	return last.Alarms, true
}
