package locktest

import (
	"context"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"github.com/clustermutex/unlocker/internal/etcdmemory"
	"github.com/clustermutex/unlocker/internal/etcdtest"
	"github.com/clustermutex/unlocker/internal/lockstore"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

// patience is how long anything that was to come is awaited before the test fails.
const patience = 30 * time.Second

// Server is an etcd with locks.
type Server struct {
	t        testing.TB
	endpoint string
	etcd     *clientv3.Client // can be cut off
	cut      func()
	heal     func()

	others   *clientv3.Client // of everybody else, who is never cut off
	stranger *mutex.Client
	layout   protocol.Layout
	store    *lockstore.Store
}

// New runs an etcd of one member with its data in a temporary directory.
func New(t testing.TB) *Server {
	t.Helper()
	member := etcdtest.Start(t)
	proxy := etcdtest.NewProxy(t, member.Endpoint())
	s := &Server{
		t: t, endpoint: proxy.Endpoint(), cut: proxy.Cut, heal: proxy.Heal,
		etcd: dial(t, proxy.Endpoint()), others: dial(t, member.Endpoint()),
	}
	return s.under(mutex.DefaultPrefix)
}

// NewInMemory returns an etcd for a bubble of testing/synctest. Its t is that of the bubble.
func NewInMemory(t testing.TB) *Server {
	t.Helper()
	memory := etcdmemory.New()
	near := memory.Connect()
	far := memory.Connect()
	t.Cleanup(func() { far.Client().Close() })
	t.Cleanup(func() { near.Client().Close() })
	s := &Server{t: t, cut: near.Cut, heal: near.Heal, etcd: near.Client(), others: far.Client()}
	return s.under(mutex.DefaultPrefix)
}

// dial makes a client that comes back quickly when it was cut off.
func dial(t testing.TB, endpoint string) *clientv3.Client {
	t.Helper()
	quick := grpc.ConnectParams{
		Backoff: backoff.Config{BaseDelay: 10 * time.Millisecond, Multiplier: 1.5,
			MaxDelay: 200 * time.Millisecond},
		MinConnectTimeout: time.Second,
	}
	c, err := clientv3.New(clientv3.Config{
		Endpoints: []string{endpoint}, MaxUnaryRetries: 1, Logger: zap.NewNop(),
		DialKeepAliveTime: 10 * time.Second, DialOptions: []grpc.DialOption{grpc.WithConnectParams(quick)},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// Under is the same etcd, with the locks below another prefix.
func (s *Server) Under(prefix string) *Server {
	s.t.Helper()
	other := *s
	return other.under(prefix)
}

func (s *Server) under(prefix string) *Server {
	s.t.Helper()
	layout, err := protocol.NewLayout(prefix)
	if err != nil {
		s.t.Fatal(err)
	}
	s.layout, s.store = layout, lockstore.New(s.others, layout)
	s.stranger = s.client(s.others, mutex.Options{Owner: "stranger", Hostname: "elsewhere"})
	return s
}

// Endpoint is the URL of a real etcd, for programs that make their own connection. [Server.Cut] cuts them off, too.
func (s *Server) Endpoint() string {
	s.t.Helper()
	if s.endpoint == "" {
		s.t.Fatal("locktest: an etcd in memory has no endpoint")
	}
	return s.endpoint
}

// Etcd is a client for programs that make their own [mutex.Client]. It is closed when the test ends: close yours
// before.
func (s *Server) Etcd() *clientv3.Client { return s.etcd }

// Client is a lock client, as the program under test has one. It is closed when the test ends, after the network was
// healed, and must have cleaned up after itself by then. Prefix may be empty.
func (s *Server) Client(o mutex.Options) *mutex.Client {
	s.t.Helper()
	return s.client(s.etcd, o)
}

func (s *Server) client(etcd *clientv3.Client, o mutex.Options) *mutex.Client {
	s.t.Helper()
	if o.Prefix == "" {
		o.Prefix = s.layout.Prefix()
	}
	c, err := mutex.New(etcd, o)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		s.heal()
		if err := c.Close(); err != nil {
			s.t.Error(err)
		}
	})
	return c
}

// Cut has the network break between the program under test and etcd, until [Server.Heal]: requests fail, watches are
// silent. What the methods of the server do goes on working.
func (s *Server) Cut() { s.cut() }

// Heal ends the cut.
func (s *Server) Heal() { s.heal() }

// Hold takes a lock as somebody else, on another machine, and does not wait for it. The options are those of
// [mutex.Client.TryLock].
func (s *Server) Hold(name string, opts ...mutex.Option) *mutex.Lock {
	s.t.Helper()
	l, err := s.stranger.TryLock(context.Background(), name, opts...)
	if err != nil {
		s.t.Fatal(err)
	}
	return l
}

// ForceUnlock removes a hold as a person does on the dashboard. Its holder learns of it with the reason; by is
// "operator".
func (s *Server) ForceUnlock(name, reason string) {
	s.t.Helper()
	const operator = "operator"
	r := s.removal(name, metadata.EndedForced, operator, reason)
	at := metadata.Time{Time: time.Now()}
	err := s.store.ForceUnlock(context.Background(), r, protocol.Action{
		ID: "locktest-" + r.Record.UUID, At: at, Actor: operator, Source: "locktest", Action: "force-unlock",
		Lock: name, UUID: r.Record.UUID, Token: r.Record.Token, Revision: r.Record.Revision, Holder: r.Record.Owner,
		Reason: reason, Result: "success",
	})
	if err != nil {
		s.t.Fatal(err)
	}
}

// Expire removes a hold as an unlocker does whose time is up, whatever the time: no clock has to move for it.
func (s *Server) Expire(name string) {
	s.t.Helper()
	r := s.removal(name, metadata.EndedAutoUnlocked, "locktest", "the test says that its time is up")
	for _, err := range s.store.AutoUnlock(context.Background(), []metadata.Removal{r}) {
		if err != nil {
			s.t.Fatalf("locktest: auto-unlock %q: %v", name, err)
		}
	}
}

func (s *Server) removal(name, ended, by, why string) metadata.Removal {
	s.t.Helper()
	doc := s.AssertHeld(name)
	if doc.Token == 0 {
		s.t.FailNow()
	}
	return metadata.Removal{Record: &doc.Record, Ending: metadata.NewEnding(&doc.Record, ended, by, why, time.Now())}
}
