//go:build conformance

package conformance

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// world is an etcd that many checks share, each with names of its own.
type world struct {
	endpoint string
	etcd     *clientv3.Client
	names    *atomic.Int64
}

func newWorld(t *testing.T) *world {
	t.Helper()
	s := etcdtest.Start(t, etcdtest.Gateway())
	return &world{endpoint: s.Endpoint(), etcd: s.Client(t), names: &atomic.Int64{}}
}

// scene is a part of an etcd for one check: a prefix of its own.
type scene struct {
	t      *testing.T
	etcd   *clientv3.Client
	layout protocol.Layout
	target []string // endpoints of etcd

	user, password, ca, cert, key string
	timeout                       float64 // seconds that drivers wait for one answer
}

// scene is a part of the shared etcd.
func (w *world) scene(t *testing.T) *scene {
	return newScene(t, w.etcd, fmt.Sprintf("/c%d/", w.names.Add(1)), w.endpoint)
}

func newScene(t *testing.T, etcd *clientv3.Client, prefix string, endpoints ...string) *scene {
	layout, err := protocol.NewLayout(prefix)
	proctest.Must(t, err)
	return &scene{t: t, etcd: etcd, layout: layout, target: endpoints, timeout: 15}
}

func (s *scene) open(c *client, endpoints ...string) *driver {
	s.t.Helper()
	d := c.start(s.t)
	d.must(s.opening(endpoints...))
	return d
}

func (s *scene) opening(endpoints ...string) request {
	if len(endpoints) == 0 {
		endpoints = s.target
	}
	return request{"do": "open", "endpoints": endpoints, "prefix": s.layout.Prefix(), "owner": "conformance",
		"user": s.user, "password": s.password, "ca": s.ca, "cert": s.cert, "key": s.key, "timeout": s.timeout}
}

// context bounds what the suite itself asks of etcd.
func (s *scene) context() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), *limit)
}

// get reads keys. It tries again if etcd says that the suite's own token has expired.
func (s *scene) get(key string, opts ...clientv3.OpOption) []*mvccpb.KeyValue {
	s.t.Helper()
	ctx, cancel := s.context()
	defer cancel()
	for try := 1; ; try++ {
		got, err := s.etcd.Get(ctx, key, opts...)
		if err == nil {
			return got.Kvs
		}
		if try == 3 {
			s.t.Fatal(err)
		}
	}
}

// value is that of a key, empty without one.
func (s *scene) value(key string) string {
	s.t.Helper()
	for _, kv := range s.get(key) {
		return string(kv.Value)
	}
	return ""
}

func (s *scene) txn(ops ...clientv3.Op) (revision int64) {
	ctx, cancel := s.context()
	defer cancel()
	r, err := s.etcd.Txn(ctx).Then(ops...).Commit()
	proctest.Must(s.t, err)
	return r.Header.Revision
}

// lease is a lease of ten minutes.
func (s *scene) lease() clientv3.LeaseID {
	ctx, cancel := s.context()
	defer cancel()
	lease, err := s.etcd.Grant(ctx, 600)
	proctest.Must(s.t, err)
	return lease.ID
}

func (s *scene) record(name string) metadata.FullRecord {
	s.t.Helper()
	var fields []metadata.Field
	for _, kv := range s.get(s.layout.Record(name), clientv3.WithPrefix()) {
		fields = append(fields, metadata.Field{Name: strings.TrimPrefix(string(kv.Key), s.layout.Record(name)),
			Value: string(kv.Value), CreateRevision: kv.CreateRevision, ModRevision: kv.ModRevision,
			Version: kv.Version})
		if kv.Lease != 0 {
			s.t.Errorf("%s has a lease: a held lock has none", kv.Key)
		}
	}
	return lockrecord.Decode(name, fields)
}

// recordOf is the record of a hold, which is sound, and says what the driver said.
func (s *scene) recordOf(l *lock) metadata.FullRecord {
	s.t.Helper()
	r := s.record(l.name)
	if r.UUID != l.uuid || r.Token != l.token || r.Malformed() || len(r.Problems) > 0 {
		s.t.Errorf("the record is of %s with token %d and problems %v, the driver said %s and %d", r.UUID, r.Token,
			r.Problems, l.uuid, l.token)
	}
	return r
}

func (s *scene) keys(prefix string) (keys []string) {
	s.t.Helper()
	for _, kv := range s.get(prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly()) {
		keys = append(keys, string(kv.Key))
	}
	return keys
}

// tickets are those who wait for the lock, without the marked tickets of holders.
func (s *scene) tickets(name string) (uuids []string) {
	s.t.Helper()
	oldestFirst := clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend)
	for _, kv := range s.get(s.layout.Queue(name), clientv3.WithPrefix(), oldestFirst) {
		uuid := strings.TrimPrefix(string(kv.Key), s.layout.Queue(name))
		if kv.Lease == 0 {
			s.t.Errorf("%s has no lease: it would stay when its waiter dies", kv.Key)
		}
		if uuid != ".tail" && !strings.Contains(string(kv.Value), `"holding":true`) {
			uuids = append(uuids, uuid)
		}
	}
	return uuids
}

func (s *scene) queued(name string, n int) {
	s.t.Helper()
	eventually(s.t, fmt.Sprintf("%d tickets for %q", n, name), func() error {
		if got := s.tickets(name); len(got) != n {
			return fmt.Errorf("there are %d", len(got))
		}
		return nil
	})
}

// queues has a driver wait for the lock, behind those who make it so many.
func (s *scene) queues(d *driver, name string, w want, n int) *call {
	c := d.begin(name, w)
	s.queued(name, n)
	return c
}

func (s *scene) free(names ...string) {
	s.t.Helper()
	eventually(s.t, fmt.Sprintf("nothing left of %q", names), func() error {
		for _, name := range names {
			if left := append(s.keys(s.layout.Record(name)), s.keys(s.layout.Queue(name))...); len(left) > 0 {
				return fmt.Errorf("left are %q", left)
			}
		}
		return nil
	})
}

// eventually calls try until it returns nil.
func eventually(t *testing.T, what string, try func() error) {
	t.Helper()
	for deadline := time.Now().Add(*limit); ; time.Sleep(20 * time.Millisecond) {
		err := try()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v: %v", what, *limit, err)
		}
	}
}

// ends releases the lock, and wants nothing to be left of it.
func (s *scene) ends(l *lock) {
	s.t.Helper()
	l.mustRelease()
	s.free(l.name)
}

// progress is what the holder reported last, empty if it did not.
func progress(d metadata.FullRecord) string {
	if d.Alive == nil {
		return ""
	}
	return d.Alive.Progress
}
