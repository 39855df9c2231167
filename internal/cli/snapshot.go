package cli

import (
	"cmp"
	"context"
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// snapshot is all locks at one revision.
type snapshot struct {
	locks     []*metadata.Record // by name
	misplaced []*metadata.Record // at the keys of no lock, by place
	waiters   map[string][]metadata.Waiter
	unlockers []metadata.Presence // running ones
	foreign   int                 // keys below the prefix that fit no layout
	revision  int64
}

// snapshot lists the locks. Keys come in order, so each record is put together as they come, and only one lock is in
// memory as a whole.
func (s *session) snapshot(ctx context.Context) (*snapshot, error) {
	all := &snapshot{waiters: map[string][]metadata.Waiter{}}
	stated := map[protocol.Key]*metadata.Statement{}
	g := gatherer{add: func(r *metadata.Record) { all.locks = append(all.locks, r) }}
	misplaced := gatherer{add: func(r *metadata.Record) {
		if r.Token != 0 {
			s.layout.Misplace(r)
			all.misplaced = append(all.misplaced, r)
		}
	}}
	revision, err := s.store.List(ctx, func(kv protocol.KV) {
		switch key := s.layout.Parse(kv.Key); key.Kind {
		case protocol.KindField:
			g.take(key, kv)
		case protocol.KindTicket:
			if w := waiter(key, kv); !w.Holding {
				all.waiters[key.Lock] = append(all.waiters[key.Lock], w)
			}
		case protocol.KindDeath, protocol.KindSuspicion:
			if st := protocol.ReadStatement(key.ID, kv); st != nil {
				stated[key] = st
			}
		case protocol.KindUnlocker:
			all.takeUnlocker(key.ID, kv)
		case protocol.KindForeign:
			g.take(key, kv)
			if place, field, ok := s.layout.Misplaced(kv.Key); ok {
				misplaced.take(protocol.Key{Kind: protocol.KindField, Lock: place, ID: field}, kv)
			}
			all.foreign++
		}
	})
	if err != nil {
		return nil, s.explain(ctx, "list the locks", err)
	}
	g.flush()
	misplaced.flush()
	for _, r := range all.locks {
		r.Heed(stated[protocol.Key{Kind: protocol.KindDeath, ID: r.UUID}],
			stated[protocol.Key{Kind: protocol.KindSuspicion, ID: r.UUID}])
	}
	all.revision = revision
	byName(all.locks)
	for _, w := range all.waiters {
		inOrder(w)
	}
	return all, nil
}

func byName(locks []*metadata.Record) {
	slices.SortFunc(locks, func(a, b *metadata.Record) int { return cmp.Compare(a.Name, b.Name) })
}

// takeUnlocker takes the record of an unlocker. Without a lease it would stay when the unlocker is gone, so it proves
// nothing.
func (all *snapshot) takeUnlocker(instance string, kv protocol.KV) {
	p, err := protocol.Unmarshal[metadata.Presence](kv.Value)
	switch {
	case kv.Lease == 0:
		all.foreign++
	case err == nil:
		p.ID = instance // the key tells unlockers apart
		all.unlockers = append(all.unlockers, p)
	}
}

// gatherer puts the keys of each lock together, one lock after the other.
type gatherer struct {
	add     func(*metadata.Record)
	lock    string
	fields  []metadata.Field
	foreign []string
}

func (g *gatherer) take(key protocol.Key, kv protocol.KV) {
	if key.Lock == "" {
		return // in no lock's range
	}
	if key.Lock != g.lock {
		g.flush()
		g.lock = key.Lock
	}
	if key.Kind == protocol.KindForeign {
		g.foreign = append(g.foreign, kv.Key)
		return
	}
	g.fields = append(g.fields, metadata.Field{
		Name: key.ID, Value: string(kv.Value), CreateRevision: kv.CreateRevision, ModRevision: kv.ModRevision,
	})
}

// flush hands over the current lock. Foreign keys alone are no lock.
func (g *gatherer) flush() {
	if len(g.fields) > 0 {
		doc := metadata.Decode(g.lock, g.fields, g.foreign...)
		r := doc.Record // a copy, which does not keep the backtrace
		g.add(&r)
	}
	g.fields = nil
	g.foreign = nil
}

// queue reads who waits for one lock.
func (s *session) queue(ctx context.Context, name string) ([]metadata.Waiter, error) {
	asking, cancel := s.request(ctx)
	defer cancel()
	resp, err := s.client.Get(asking, s.layout.Queue(name), clientv3.WithPrefix())
	if err != nil {
		return nil, s.explain(ctx, "read who waits for "+text.Visible(name), err)
	}
	var waiters []metadata.Waiter
	for _, kv := range resp.Kvs {
		key := s.layout.Parse(string(kv.Key))
		if w := waiter(key, protocol.KV{Value: kv.Value,
			CreateRevision: kv.CreateRevision}); key.Kind == protocol.KindTicket && !w.Holding {
			waiters = append(waiters, w)
		}
	}
	inOrder(waiters)
	return waiters, nil
}

// waiter reads a ticket. An unreadable one still counts in the queue.
func waiter(key protocol.Key, kv protocol.KV) metadata.Waiter {
	w := metadata.Waiter{Lock: key.Lock, ID: key.ID, Place: kv.CreateRevision}
	w.Ticket, _ = protocol.Unmarshal[metadata.Ticket](kv.Value)
	return w
}

func inOrder(w []metadata.Waiter) {
	slices.SortFunc(w, func(a, b metadata.Waiter) int { return cmp.Compare(a.Place, b.Place) })
}
