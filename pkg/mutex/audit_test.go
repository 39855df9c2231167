package mutex_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

// audit replays the whole history of etcd, revision by revision, and checks every state: never more permits
// than the limit, never a writer beside anybody, nobody served while an older one queues. So it misses no violation,
// however short it was.
type audit struct {
	testing.TB
	lock  string
	holds map[string]*metadata.Document // by record
	queue map[string]int64              // create revisions of the tickets

	// passing says that those who do not queue may pass.
	passing bool

	takes, fromQueue, most int // most permits or readers at once
	readers, writers       int
}

// history audits everything that happened to a lock until now.
func history(t testing.TB, etcd *clientv3.Client, lock string, passing bool) *audit {
	t.Helper()
	a := &audit{TB: t, lock: lock, holds: map[string]*metadata.Document{}, queue: map[string]int64{}, passing: passing}
	now, err := etcd.Get(context.Background(), "x")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	etcdtest.Put(t, etcd, mutex.DefaultPrefix+".end", "")
	var batch []*clientv3.Event
	for w := range etcd.Watch(ctx, mutex.DefaultPrefix, clientv3.WithPrefix(), clientv3.WithRev(1)) {
		for _, e := range w.Events {
			if len(batch) > 0 && batch[0].Kv.ModRevision != e.Kv.ModRevision {
				a.revision(batch)
				batch = nil
			}
			if batch = append(batch, e); e.Kv.ModRevision > now.Header.Revision {
				if _, err := etcd.Delete(ctx, mutex.DefaultPrefix+".end"); err != nil {
					t.Error(err)
				}
				return a
			}
		}
	}
	t.Fatal("the history ended early")
	return nil
}

// revision applies what one transaction did.
func (a *audit) revision(events []*clientv3.Event) {
	layout := layout(a)
	puts := map[string]string{}
	for _, e := range events {
		if e.Type == clientv3.EventTypePut {
			puts[string(e.Kv.Key)] = string(e.Kv.Value)
		}
	}
	var taken []string
	for _, e := range events {
		key := layout.Parse(string(e.Kv.Key))
		base, _, isShare := metadata.ParseShare(key.Lock)
		switch {
		case key.Kind == protocol.KindTicket && key.Lock == a.lock:
			if e.Type == clientv3.EventTypePut && e.IsCreate() {
				a.queue[key.ID] = e.Kv.CreateRevision
			}
		case key.Kind != protocol.KindField || key.ID != metadata.FieldUUID || key.Lock != a.lock &&
			!(isShare && base == a.lock):
		case e.Type == clientv3.EventTypeDelete:
			delete(a.holds, key.Lock)
		default:
			d := metadata.Decode(key.Lock, []metadata.Field{
				{Name: metadata.FieldUUID, Value: string(e.Kv.Value)},
				{Name: metadata.FieldMetadata, Value: puts[layout.Field(key.Lock, metadata.FieldMetadata)]},
			})
			if !e.IsCreate() {
				a.Errorf("revision %d: %s is overwritten", e.Kv.ModRevision, key.Lock)
			}
			a.holds[key.Lock] = &d
			taken = append(taken, string(e.Kv.Value))
			a.judge(&d, e.Kv.ModRevision)
		}
	}
	for _, uuid := range taken {
		a.order(uuid, events[0].Kv.ModRevision)
	}
	for _, e := range events {
		if key := layout.Parse(string(e.Kv.Key)); key.Kind == protocol.KindTicket && key.Lock == a.lock &&
			e.Type == clientv3.EventTypeDelete {
			delete(a.queue, key.ID)
		}
	}
}

// judge checks that there was room for the new hold d.
func (a *audit) judge(d *metadata.Document, revision int64) {
	sum := 0
	readers := 0
	writers := 0
	for _, h := range a.holds {
		switch h.Attributes[metadata.AttributeKind] {
		case metadata.HoldsPermits:
			sum += h.Permits()
		case metadata.HoldsShared:
			readers++
			sum++ // of those who count permits
		default:
			writers++
		}
	}
	a.takes++
	a.most = max(a.most, sum)
	switch d.Attributes[metadata.AttributeKind] {
	case metadata.HoldsShared:
		a.readers++
	case metadata.HoldsExclusive:
		a.writers++
	case metadata.HoldsPermits:
		limit, err := d.Attributes[metadata.AttributeLimit].(json.Number).Int64()
		if err != nil || sum > int(limit) {
			a.Errorf("revision %d: %s took the permit number %d of %d", revision, d.Name, sum, limit)
		}
	}
	if writers > 1 || writers == 1 && sum > 0 {
		a.Errorf("revision %d: %d writers, %d readers and %d permits after %s was taken", revision, writers, readers,
			sum, d.Name)
	}
	uuids := map[string]bool{}
	for _, h := range a.holds {
		if uuids[h.UUID] {
			a.Errorf("revision %d: two records of %s", revision, h.UUID)
		}
		uuids[h.UUID] = true
	}
}

// order checks that no older waiter was in the queue when the lock was taken.
func (a *audit) order(uuid string, revision int64) {
	place, queued := a.queue[uuid]
	if queued {
		a.fromQueue++
	}
	if a.passing && !queued {
		return
	}
	for other, older := range a.queue {
		if other != uuid && (!queued || older < place) {
			a.Errorf("revision %d: %s was served although %s came before", revision, uuid, other)
		}
	}
}

// kindsHeld are the kinds of the records that are held now, sorted.
func (a *audit) kindsHeld() (kinds []string) {
	for _, h := range a.holds {
		kinds = append(kinds, fmt.Sprint(h.Attributes[metadata.AttributeKind]))
	}
	slices.Sort(kinds)
	return kinds
}
