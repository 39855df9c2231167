package etcdlocks

import (
	"context"

	"github.com/clustermutex/unlocker/internal/lockview"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// Source is how etcd is read: by a lockstore.Store.
type Source interface {
	ListPrefix(ctx context.Context, prefix string, revision int64, each func(protocol.KV)) (int64, error)
	WatchPrefix(ctx context.Context, prefix string, after int64, each func(int64, []protocol.Event)) error
	ReadLease(ctx context.Context, lease int64) (protocol.Lease, error)
}

// below returns the keys below a prefix as tickets.
func (w *Watcher) below(prefix string) lockview.Source {
	return lockview.Source{
		List: func(ctx context.Context, each func(protocol.KV)) (int64, error) {
			kept := 0
			return w.source.ListPrefix(ctx, prefix, 0, func(kv protocol.KV) {
				if t, ok := ticket(w.own, kv); ok && !w.isOurs(kv.Key) && kept < maxKeys {
					kept++
					each(t)
				}
			})
		},
		Watch: func(ctx context.Context, after int64, each func(int64, []protocol.Event)) error {
			return w.source.WatchPrefix(ctx, prefix, after, func(revision int64, events []protocol.Event) {
				w.apply(w.views[prefix], w.tickets(events), func(tickets []protocol.Event) { each(revision, tickets) })
			})
		},
	}
}

func (w *Watcher) isOurs(key string) bool { return w.own.Parse(key).Kind != protocol.KindForeign }

// tickets returns events on keys as events on tickets. Where a key is not, or no longer, read as a ticket, that is
// deleted.
func (w *Watcher) tickets(events []protocol.Event) (tickets []protocol.Event) {
	for _, e := range events {
		if w.isOurs(e.Key) || len(e.Key) > maxName {
			continue
		}
		written, ok := ticket(w.own, e.KV)
		queued, own := ticketKeys(w.own, e.Key)
		for _, key := range []string{queued, own} {
			switch {
			case key == "":
			case ok && !e.Deleted && key == written.Key:
				tickets = append(tickets, protocol.Event{KV: written})
			default:
				tickets = append(tickets, protocol.Event{KV: protocol.KV{Key: key, ModRevision: e.ModRevision},
					Deleted: true})
			}
		}
	}
	return tickets
}

// apply applies the events of a revision to a view, and notes which locks have other holders since.
func (w *Watcher) apply(view *lockview.View, tickets []protocol.Event, apply func([]protocol.Event)) {
	before := map[string][]metadata.Waiter{}
	for _, e := range tickets {
		lock := w.own.Parse(e.Key).Lock
		before[lock] = view.Waiters(lock)
	}
	apply(tickets)
	for lock, queue := range before {
		w.passed(queue, view.Waiters(lock))
	}
}
