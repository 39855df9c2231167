package locktxn_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/locktxn"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

func TestMain(m *testing.M) { etcdtest.Main(m) }

const mine, other = "6f1f6f5e-5d1c-4e52-9d2e-0a9a3f1c7b11", "00000000-0000-4000-8000-000000000002"

// The times of these tests, in order.
const (
	past  = "1553682000"
	soon  = "1553682600"
	later = "1553682600.5"
	last  = "1553683000"
)

// store is an etcd and the verbs of this package on it.
type store struct {
	*testing.T
	etcd *clientv3.Client
	l    protocol.Layout
}

func start(t *testing.T) store {
	l := protocol.DefaultLayout()
	return store{t, etcdtest.Shared(t).Client(t), l}
}

func (s store) commit(t locktxn.Txn) *clientv3.TxnResponse {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), 5*time.Second)
	defer cancel()
	resp, err := t.Commit(ctx, s.etcd)
	proctest.Must(s, err)
	return resp
}

// done expects the transaction to succeed.
func (s store) done(what string, t locktxn.Txn) *clientv3.TxnResponse {
	s.Helper()
	resp := s.commit(t)
	if !resp.Succeeded {
		s.Fatalf("%s: refused", what)
	}
	return resp
}

// refused expects the transaction to change nothing at all.
func (s store) refused(what string, t locktxn.Txn) *clientv3.TxnResponse {
	s.Helper()
	before := s.keys("")
	resp := s.commit(t)
	if resp.Succeeded {
		s.Errorf("%s: done, want it refused", what)
	}
	if after := s.keys(""); !slices.Equal(before, after) {
		s.Errorf("%s changed\n%s\nto\n%s", what, strings.Join(before, "\n"), strings.Join(after, "\n"))
	}
	return resp
}

func (s store) get(key string, opts ...clientv3.OpOption) *clientv3.GetResponse {
	s.Helper()
	return locktxn.Keys(s.commit(locktxn.Txn{Then: []clientv3.Op{clientv3.OpGet(key, opts...)}}), 0)
}

// keys returns "key=value@revision" of all keys with the prefix.
func (s store) keys(prefix string) []string {
	s.Helper()
	var keys []string
	for _, kv := range s.get(s.l.Prefix()+prefix, clientv3.WithPrefix()).Kvs {
		keys = append(keys, fmt.Sprintf("%s=%s@%d", kv.Key, kv.Value, kv.ModRevision))
	}
	return keys
}

func (s store) put(key, value string) (revision int64) {
	s.Helper()
	return s.commit(locktxn.Txn{Then: []clientv3.Op{clientv3.OpPut(key, value)}}).Header.Revision
}

func (s store) lease() clientv3.LeaseID {
	s.Helper()
	resp, err := s.etcd.Grant(s.Context(), 600)
	proctest.Must(s, err)
	return resp.ID
}

func (s store) acquire(lock, uuid string) locktxn.Txn {
	return locktxn.Acquire(s.l, locktxn.PlainClaim(lock), uuid, []metadata.Field{
		{Name: lockrecord.FieldUUID, Value: uuid}, {Name: lockrecord.FieldAlertAt, Value: past},
		{Name: lockrecord.FieldAutoUnlockAt, Value: soon},
		{Name: lockrecord.FieldMetadata, Value: `{"owner":"billing"}`},
	}, false)
}

// hold takes the lock.
func (s store) hold(lock, uuid string) locktxn.Hold {
	s.Helper()
	resp := s.done("acquire "+lock, s.acquire(lock, uuid))
	return locktxn.Hold{Lock: lock, UUID: uuid, Token: resp.Header.Revision}
}

// record reads the lock as an unlocker sees it.
func (s store) record(lock string) *metadata.Record {
	s.Helper()
	resp := s.get(s.l.Record(lock), clientv3.WithPrefix())
	var foreign []string
	for _, kv := range resp.Kvs {
		if s.l.Parse(string(kv.Key)).Kind == protocol.KindForeign {
			foreign = append(foreign, string(kv.Key))
		}
	}
	d := lockrecord.Decode(lock, locktxn.Fields(s.l, resp), foreign...)
	return &d.Record
}

func (s store) removal(r *metadata.Record, by string) *locktxn.Removal {
	s.Helper()
	at := time.Unix(1_553_683_000, 0)
	return &locktxn.Removal{
		Removal: lockrecord.Removal{Record: r, Ending: lockrecord.NewEnding(r, metadata.EndingAutoUnlocked, by,
			"deadline passed", at)}, HistoryLease: s.lease(),
	}
}

func TestCancelledAttemptNeverHolds(t *testing.T) {
	s := start(t)
	s.commit(locktxn.Cancel(s.l, locktxn.PlainClaim("a"), mine, s.lease())) // nothing to delete yet
	s.refused("acquire after the cancel", s.acquire("a", mine))
	s.hold("a", other)
	s.commit(locktxn.Cancel(s.l, locktxn.PlainClaim("a"), mine, s.lease())) // of an attempt that never got the lock
	if r := s.record("a"); r.UUID != other {
		t.Errorf("the cancel of one attempt took the lock from another: %+v", r)
	}

	s.hold("b", "00000000-0000-4000-8000-000000000003")
	s.done("cancel of a committed attempt", locktxn.Cancel(s.l, locktxn.PlainClaim("b"),
		"00000000-0000-4000-8000-000000000003", s.lease()))
	if left := s.keys("b/"); len(left) > 0 {
		t.Errorf("the cancelled attempt left %v", left)
	}
}

func TestAlive(t *testing.T) {
	s := start(t)
	h := s.hold("a", mine)
	alive := func(h locktxn.Hold, deadline string) locktxn.Txn {
		return locktxn.Alive(s.l, h, deadline, deadline, deadline+" half done")
	}

	s.done("alive", alive(h, last))
	if r := s.record("a"); r.Alive == nil || r.Alive.Progress != "half done" || r.Extensions != 1 ||
		metadata.FormatTime(r.AutoUnlockAt) != last || metadata.FormatTime(r.AlertAt) != last {
		t.Errorf("after alive: %+v", r)
	}
	for what, deadline := range map[string]string{"a late one, with an earlier deadline": later,
		"the same again": last} {
		r := s.done(what, alive(h, deadline))
		others, moved := locktxn.AliveResult(r)
		if now := s.record("a"); moved || len(others.Kvs) != 3 || now.Alive.Revision != r.Header.Revision ||
			metadata.FormatTime(now.AutoUnlockAt) != last || metadata.FormatTime(now.AlertAt) != last {
			t.Errorf("%s: moved %v, read %v, and left %+v", what, moved, others, now)
		}
	}
	s.refused("alive with another uuid", alive(locktxn.Hold{Lock: "a", UUID: other, Token: h.Token}, "1553684000"))
	s.refused("alive with another token", alive(locktxn.Hold{Lock: "a", UUID: mine, Token: h.Token + 1}, "1553684000"))

	s.done("release", locktxn.Release(s.l, h))
	s.refused("alive after the release", alive(h, "1553684000"))
	if left := s.keys(""); len(left) > 0 {
		t.Errorf("a late alive created %v", left)
	}
	s.hold("a", mine) // the same uuid by mistake: the token still tells them apart
	s.refused("alive of the hold before", alive(h, "1553684000"))
}

func TestRelease(t *testing.T) {
	s := start(t)
	h := s.hold("a", mine)
	s.put(s.l.Field("a", "tenant"), "41") // whoever wrote it: it goes with the record
	s.done("release", locktxn.Release(s.l, h))
	s.refused("the same release, sent again", locktxn.Release(s.l, h))
	next := s.hold("a", other)
	s.refused("a late release after another took the lock", locktxn.Release(s.l, h))
	s.refused("a release with the next one's token",
		locktxn.Release(s.l, locktxn.Hold{Lock: "a", UUID: mine, Token: next.Token}))
	s.refused("a release with the next one's uuid",
		locktxn.Release(s.l, locktxn.Hold{Lock: "a", UUID: other, Token: h.Token}))
}
