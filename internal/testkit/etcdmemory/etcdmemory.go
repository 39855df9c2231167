// Package etcdmemory is an etcd in memory. locktest.NewInMemory offers it to users, to test code that takes locks in a
// bubble of testing/synctest, where time passes at once, and where sockets, and therefore a real etcd, cannot work.
//
// Keys, transactions, revisions, watches and leases behave as in etcd: a test sends the same requests to both and
// compares the answers. There is one member, which never fails. It has no disk, users, quota, alarms or compaction, and
// returns an error for requests that need them. Clients are those of package clientv3, and each can be cut off.
package etcdmemory

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Server holds the keys. It has no goroutines of its own; timers of leases may outlive it.
type Server struct {
	mu       sync.Mutex
	revision int64
	keys     map[string]*mvccpb.KeyValue // values are never changed, only replaced
	history  []*mvccpb.Event             // all events, in order
	leases   map[clientv3.LeaseID]*lease
	granted  clientv3.LeaseID
	streams  map[*stream]bool
}

// New returns an etcd without keys.
func New() *Server {
	return &Server{
		revision: 1, keys: map[string]*mvccpb.KeyValue{},
		leases: map[clientv3.LeaseID]*lease{}, streams: map[*stream]bool{},
	}
}

// Link is the network between one client and the server.
type Link struct {
	server *Server
	client *clientv3.Client

	// Deaf makes watches miss events while it returns true. Set it before the first watch.
	Deaf func() bool

	mu     sync.Mutex
	healed chan struct{} // closed while the link is up
}

// Connect returns the link of a new client. Close the client: its watches and leases have goroutines.
func (s *Server) Connect() *Link {
	l := &Link{server: s, healed: make(chan struct{})}
	close(l.healed)
	l.client = clientv3.NewCtxClient(context.Background())
	l.client.KV = clientv3.NewKVFromKVClient(&kv{link: l}, l.client)
	l.client.Watcher = watcher{newBackground(l)}
	l.client.Lease = leaseKeeper{newBackground(l)}
	return l
}

// Client returns the client of the link.
func (l *Link) Client() *clientv3.Client { return l.client }

// Cut makes all requests fail and watches go silent, until Heal.
func (l *Link) Cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.isUp() {
		l.healed = make(chan struct{})
	}
}

// Heal ends a cut. Watches continue with what they missed.
func (l *Link) Heal() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.isUp() {
		close(l.healed)
	}
}

func (l *Link) isUp() bool {
	select {
	case <-l.healed:
		return true
	default:
		return false
	}
}

// up returns a channel that is closed while the link is up.
func (l *Link) up() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.healed
}

// pass returns the error of a request that cannot reach the server, or nil.
func (l *Link) pass(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return status.FromContextError(err).Err()
	}
	select {
	case <-l.up():
		return nil
	default:
		return status.Error(codes.Unavailable, "the client is cut off")
	}
}

// background is what works for a client until it is closed: its watches, or what keeps its leases alive.
type background struct {
	link *Link
	ctx  context.Context // ended by Close
	stop context.CancelFunc
	wg   sync.WaitGroup
}

func newBackground(l *Link) *background {
	b := &background{link: l}
	b.ctx, b.stop = context.WithCancel(context.Background())
	return b
}

// Close ends all watches, or stops keeping leases alive, which then expire.
func (b *background) Close() error {
	b.stop()
	b.wg.Wait()
	return nil
}

// change is one write transaction: all of its changes have the same revision.
type change struct {
	s        *Server
	revision int64
	events   []*mvccpb.Event
	before   map[string]*mvccpb.KeyValue // of the keys that were changed
}

func (s *Server) begin() *change {
	return &change{s: s, revision: s.revision + 1, before: map[string]*mvccpb.KeyValue{}}
}

// happened records a change of a key. The previous value is that before the transaction, not that of an earlier
// operation in it.
func (c *change) happened(what mvccpb.Event_EventType, kv, old *mvccpb.KeyValue) {
	if _, again := c.before[string(kv.Key)]; !again {
		c.before[string(kv.Key)] = old
	}
	e := &mvccpb.Event{Type: what, Kv: kv}
	if kv.CreateRevision != kv.ModRevision { // otherwise the key is new
		e.PrevKv = c.before[string(kv.Key)]
	}
	c.events = append(c.events, e)
}

// commit increments the revision if anything was changed, and notifies watches.
func (c *change) commit() {
	if len(c.events) == 0 {
		return
	}
	c.s.revision = c.revision
	c.s.history = append(c.s.history, c.events...)
	for st := range c.s.streams {
		st.deliver(c.events)
	}
}

// now returns the revision of answers from within the change.
func (c *change) now() int64 {
	if len(c.events) > 0 {
		return c.revision
	}
	return c.s.revision
}

func (c *change) put(key, value []byte, id clientv3.LeaseID) {
	old := c.s.keys[string(key)]
	kv := &mvccpb.KeyValue{Key: key, Value: value, Lease: int64(id), CreateRevision: c.revision,
		ModRevision: c.revision, Version: 1}
	if old != nil {
		kv.CreateRevision, kv.Version = old.CreateRevision, old.Version+1
	}
	c.s.attach(string(key), old, id)
	c.s.keys[string(key)] = kv
	c.happened(mvccpb.Event_PUT, kv, old)
}

func (c *change) remove(key string) {
	old := c.s.keys[key]
	c.s.attach(key, old, 0)
	delete(c.s.keys, key)
	c.happened(mvccpb.Event_DELETE, &mvccpb.KeyValue{Key: []byte(key), ModRevision: c.revision}, old)
}

// in returns the keys of a range, in order. A range without an end is a single key, and one whose end is a zero byte is
// unbounded.
func in(keys map[string]*mvccpb.KeyValue, from, end []byte) []*mvccpb.KeyValue {
	if len(end) == 0 {
		if kv := keys[string(from)]; kv != nil {
			return []*mvccpb.KeyValue{kv}
		}
		return nil
	}
	var found []*mvccpb.KeyValue
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		if inRange(key, from, end) {
			found = append(found, keys[key])
		}
	}
	return found
}

func inRange(key string, from, end []byte) bool {
	switch {
	case len(end) == 0:
		return key == string(from)
	case len(end) == 1 && end[0] == 0:
		return key >= string(from)
	}
	return key >= string(from) && key < string(end)
}

func (s *Server) at(revision int64) map[string]*mvccpb.KeyValue {
	if revision == 0 || revision == s.revision {
		return s.keys
	}
	keys := map[string]*mvccpb.KeyValue{}
	for _, e := range s.history {
		switch {
		case e.Kv.ModRevision > revision:
			return keys
		case e.Type == mvccpb.Event_DELETE:
			delete(keys, string(e.Kv.Key))
		default:
			keys[string(e.Kv.Key)] = e.Kv
		}
	}
	return keys
}

// lease deletes its keys when it ends.
type lease struct {
	id    clientv3.LeaseID
	ttl   time.Duration
	until time.Time
	timer *time.Timer
	keys  map[string]bool
}

// attach moves a key from the lease of its old value to another lease, or to none.
func (s *Server) attach(key string, old *mvccpb.KeyValue, id clientv3.LeaseID) {
	if old != nil {
		if l := s.leases[clientv3.LeaseID(old.Lease)]; l != nil {
			delete(l.keys, key)
		}
	}
	if l := s.leases[id]; l != nil {
		l.keys[key] = true
	}
}

// end ends a lease and deletes its keys in one transaction.
func (s *Server) end(l *lease) {
	delete(s.leases, l.id)
	l.timer.Stop()
	c := s.begin()
	for _, key := range slices.Sorted(maps.Keys(l.keys)) {
		c.remove(key)
	}
	c.commit()
}
