package locktest

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/lockstore"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/testkit/etcdmemory"
	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

// timeout is how long to wait before the test fails.
const timeout = 30 * time.Second

// Server is an etcd with locks.
type Server struct {
	t          testing.TB
	endpoint   string
	etcd       *clientv3.Client // of the program under test; can be cut off
	disconnect func()
	reconnect  func()

	others   *clientv3.Client // for everything else; never cut off
	stranger *mutex.Client
	layout   protocol.Layout
	store    *lockstore.Store
}

// New runs a real etcd with one member. Its data is in a temporary directory.
func New(t testing.TB) *Server {
	t.Helper()
	member := etcdtest.Start(t)
	proxy := etcdtest.NewProxy(t, member.Endpoint())
	s := &Server{
		t: t, endpoint: proxy.Endpoint(), disconnect: proxy.Cut, reconnect: proxy.Heal,
		etcd: member.Through(t, proxy.Endpoint()), others: member.Client(t),
	}
	return s.withPrefix(mutex.DefaultPrefix)
}

// NewInMemory returns an etcd for a bubble of testing/synctest. t must be that of the bubble.
func NewInMemory(t testing.TB) *Server {
	t.Helper()
	memory := etcdmemory.New()
	near := memory.Connect()
	far := memory.Connect()
	t.Cleanup(func() { far.Client().Close() })
	t.Cleanup(func() { near.Client().Close() })
	s := &Server{t: t, disconnect: near.Cut, reconnect: near.Heal, etcd: near.Client(), others: far.Client()}
	return s.withPrefix(mutex.DefaultPrefix)
}

// WithPrefix returns a Server for the same etcd with its locks below another prefix.
func (s *Server) WithPrefix(prefix string) *Server {
	s.t.Helper()
	other := *s
	return other.withPrefix(prefix)
}

func (s *Server) withPrefix(prefix string) *Server {
	s.t.Helper()
	layout, err := protocol.NewLayout(prefix)
	s.must(err)
	s.layout, s.store = layout, lockstore.New(s.others, layout)
	s.stranger = s.client(s.others, mutex.Options{Owner: "stranger", Hostname: "elsewhere"})
	return s
}

// Endpoint returns the URL of a real etcd, for programs that make their own connection. [Server.Disconnect] cuts them
// off, too.
func (s *Server) Endpoint() string {
	s.t.Helper()
	if s.endpoint == "" {
		s.t.Fatal("locktest: an etcd in memory has no endpoint")
	}
	return s.endpoint
}

// Etcd returns a client for programs that create their own [mutex.Client]. It is closed when the test ends, so close
// theirs first.
func (s *Server) Etcd() *clientv3.Client { return s.etcd }

// Client returns a lock client for the program under test. Options.Prefix may be empty. When the test ends, the network
// is restored and the client closed; the test fails if the client cannot finish its cleanup.
func (s *Server) Client(o mutex.Options) *mutex.Client {
	s.t.Helper()
	return s.client(s.etcd, o)
}

func (s *Server) client(etcd *clientv3.Client, o mutex.Options) *mutex.Client {
	s.t.Helper()
	o.Prefix = cmp.Or(o.Prefix, s.layout.Prefix())
	c, err := mutex.New(etcd, o)
	s.must(err)
	s.t.Cleanup(func() {
		s.reconnect()
		if err := c.Close(); err != nil {
			s.t.Error(err)
		}
	})
	return c
}

// Disconnect cuts the connection between the program under test and etcd until [Server.Reconnect]: requests fail, and
// watches go silent. The methods of Server keep working.
func (s *Server) Disconnect() { s.disconnect() }

// Reconnect ends the effect of [Server.Disconnect].
func (s *Server) Reconnect() { s.reconnect() }

// Hold takes a lock as another process on another machine, without waiting. The options are those of
// [mutex.Client.TryLock].
func (s *Server) Hold(name string, opts ...mutex.Option) *mutex.Lock {
	s.t.Helper()
	l, err := s.stranger.TryLock(context.Background(), name, opts...)
	s.must(err)
	return l
}

// ForceUnlock removes a hold as an operator would on the dashboard. The holder learns the reason; the ending names
// "operator".
func (s *Server) ForceUnlock(name, reason string) {
	s.t.Helper()
	s.perform(protocol.VerbForceUnlock, name, operator, reason, 0)
}

// Expire removes a hold as an unlocker would after its deadline, whatever the current time.
func (s *Server) Expire(name string) {
	s.t.Helper()
	s.remove(s.removal(name, metadata.EndingAutoUnlocked, "the test expired it"))
}

// ProveDead states that the process that holds a lock has ended, as a witness with proof would; reason is a sentence.
// The lock stays held. Its holder disputes the statement with its next [mutex.Lock.Alive].
func (s *Server) ProveDead(name, reason string) {
	s.t.Helper()
	record := s.held(name)
	statement := metadata.Statement{Name: name, UUID: record.UUID, Token: record.Token, Reason: reason, By: "locktest",
		Cause: metadata.CauseProcessEnded, Witness: metadata.WitnessHost, At: metadata.Time{Time: time.Now()}}
	s.must(s.store.RecordProof(context.Background(), statement))
}

// RemoveAbandoned removes a hold as an unlocker that believes a witness would. It calls [Server.ProveDead] first. The
// test fails if the holder has disputed the statement since, or if the hold outlives its process.
func (s *Server) RemoveAbandoned(name, reason string) {
	s.t.Helper()
	s.ProveDead(name, reason)
	r := s.removal(name, metadata.EndingAbandoned, reason)
	for _, kv := range s.get(s.layout.Death(r.Record.UUID)) {
		death := protocol.DecodeStatement(r.Record.UUID, protocol.KV{Value: kv.Value, ModRevision: kv.ModRevision})
		lockrecord.AttachStatements(r.Record, death, nil)
	}
	if !r.Record.ProvenDead() {
		s.t.Fatalf("locktest: the death of the holder of %q is not proven: it called alive or got more time since",
			name)
	}
	s.remove(r)
}

// AskToFinish asks the holder of a lock to finish, as an operator with this name would on the dashboard. See
// [mutex.Lock.FinishRequested].
func (s *Server) AskToFinish(name, by, reason string) {
	s.t.Helper()
	s.perform(protocol.VerbAsk, name, by, reason, 0)
}

// GiveMoreTime gives the holder of a lock d more time, in whole seconds, as an operator would on the dashboard. See
// [mutex.Lock.MoreTime].
func (s *Server) GiveMoreTime(name string, d time.Duration) {
	s.t.Helper()
	s.perform(protocol.VerbExtend, name, operator, "the test gave it more time", int64(d/time.Second))
}

// operator is the actor if a test names none.
const operator = "operator"

// perform performs an operator's action on the hold of a lock.
func (s *Server) perform(v protocol.Verb, name, actor, reason string, seconds int64) {
	s.t.Helper()
	r := s.held(name).Record
	a := protocol.Action{
		ID: rand.Text(), At: metadata.Time{Time: time.Now()}, Actor: actor, Source: "locktest",
		Lock: name, UUID: r.UUID, Token: r.Token, Revision: r.Revision, Holder: r.Owner,
		Reason: reason, Seconds: seconds, Result: "success",
	}
	on := protocol.ActionTarget{Hold: &r, LockDelayAfter: r.EffectiveLockDelay(0)}
	_, err := s.store.Perform(context.Background(), v, on, a)
	s.must(err)
}

func (s *Server) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// held returns the record of the lock, and ends the test if it is not held.
func (s *Server) held(name string) metadata.FullRecord {
	s.t.Helper()
	record := s.AssertHeld(name)
	if record.Token == 0 {
		s.t.FailNow()
	}
	return record
}

func (s *Server) removal(name, cause, reason string) lockrecord.Removal {
	s.t.Helper()
	record := s.held(name)
	return lockrecord.Removal{Record: &record.Record, Delay: record.EffectiveLockDelay(0),
		Ending: lockrecord.NewEnding(&record.Record, cause, "locktest", reason, time.Now())}
}

func (s *Server) remove(r lockrecord.Removal) {
	s.t.Helper()
	if err := errors.Join(s.store.AutoUnlock(context.Background(), []lockrecord.Removal{r})...); err != nil {
		s.t.Fatalf("locktest: remove lock %q: %v", r.Record.Name, err)
	}
}
