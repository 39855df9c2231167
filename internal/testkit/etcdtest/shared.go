package etcdtest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/namespace"

	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

// Space is one test's part of the etcd that the tests of a package share: its own keys and leases.
type Space struct {
	prefix string
	server *Server
	leases sync.Map // by id, those that its clients were granted
}

// shared is the etcd of the process. It outlives the test that starts it; Main stops it.
var shared struct { //nolint:gochecknoglobals // as the process has one
	sync.Mutex
	server *Server
	spaces atomic.Int64
}

// Shared returns a separate space for a test that neither stops etcd nor fills it up. The first call starts the etcd.
// The package's TestMain must call Main.
func Shared(t testing.TB) *Space {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	if shared.server == nil {
		shared.server = startShared(t)
	}
	return &Space{prefix: fmt.Sprintf("/space-%d", shared.spaces.Add(1)), server: shared.server}
}

func startShared(t testing.TB) *Server {
	dir, err := os.MkdirTemp("", "etcdtest") //nolint:usetesting // it outlives the test
	proctest.Must(t, err)
	s := &Server{}
	s.startIn(t, dir)
	return s
}

// stopShared ends the shared etcd, if there is one.
func stopShared() {
	if s := shared.server; s != nil {
		s.Stop()
		os.RemoveAll(filepath.Dir(s.Dir())) // the member's is in it
	}
}

// Endpoint returns the URL of the shared etcd, for a proxy before it.
func (s *Space) Endpoint() string { return s.server.Endpoint() }

// Client returns a client that sees the space only. It is closed at the end of the test.
func (s *Space) Client(t testing.TB) *clientv3.Client {
	t.Helper()
	return s.Within(s.server.Client(t))
}

// Through is Client through this endpoint, of a proxy.
func (s *Space) Through(t testing.TB, endpoint string) *clientv3.Client {
	t.Helper()
	return s.Within(s.server.Through(t, endpoint))
}

// Within confines a client of the shared etcd to the space.
func (s *Space) Within(c *clientv3.Client) *clientv3.Client {
	c.KV = namespace.NewKV(c.KV, s.prefix)
	c.Watcher = namespace.NewWatcher(c.Watcher, s.prefix)
	c.Lease = &spaceLeases{Lease: namespace.NewLease(c.Lease, s.prefix), granted: &s.leases}
	return c
}

type spaceLeases struct {
	clientv3.Lease
	granted *sync.Map
}

// Grant creates a lease of the space.
func (l *spaceLeases) Grant(ctx context.Context, ttl int64) (*clientv3.LeaseGrantResponse, error) {
	r, err := l.Lease.Grant(ctx, ttl)
	if err == nil {
		l.granted.Store(r.ID, true)
	}
	return r, err
}

// Leases lists the existing leases of the space.
func (l *spaceLeases) Leases(ctx context.Context) (*clientv3.LeaseLeasesResponse, error) {
	r, err := l.Lease.Leases(ctx)
	if err != nil {
		return nil, err
	}
	all := r.Leases
	r.Leases = nil
	for _, lease := range all {
		if _, ours := l.granted.Load(lease.ID); ours {
			r.Leases = append(r.Leases, lease)
		}
	}
	return r, nil
}
