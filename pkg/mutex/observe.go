package mutex

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/etcdretry"
	"github.com/clustermutex/unlocker/internal/locktxn"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

const (
	// watchAfter is how long a hold must last to be watched. Most are shorter, and no lock is taken away that quickly:
	// a watch for each of them costs a tenth of all that 64 busy clients get done (BenchmarkUncontended). One watch on
	// the whole prefix would cost the holder nothing, but have every client of a cluster read the events of all locks
	// of all others.
	watchAfter = 100 * time.Millisecond

	// holderRecheck is how often a holder asks whether it still is one, in case a watch went silent or etcd lost an
	// event.
	holderRecheck = time.Minute

	// noteTimeout is how long a holder that knows it lost the lock looks for the note that says why, before it stops
	// without.
	noteTimeout = 250 * time.Millisecond
)

// observe watches the hold until it is gone or the handle ends.
func (l *Lock) observe() {
	from, end := locktxn.Deadlines(l.c.layout, l.held.Lock)
	l.c.retry.Follow(l.watch, holderRecheck, func(events []*clientv3.Event) bool {
		if len(events) == 0 && l.awake() != nil {
			return true
		}
		timeout := holderRecheck / 3
		gone := l.goneBy(events)
		l.extendedBy(events)
		if gone {
			timeout = noteTimeout
		} else if len(events) > 0 {
			return false
		}
		ctx, cancel := context.WithTimeout(l.watch, timeout)
		defer cancel()
		lost, err := l.verify(ctx)
		if err != nil && gone && l.err() == nil {
			lost = l.lostError()
		}
		if lost == nil {
			return false
		}
		if !l.releasedMeanwhile() {
			l.lose(lost)
		}
		return true
	}, etcdretry.Watched{Key: from, Options: []clientv3.OpOption{clientv3.WithRange(end)}})
}

// goneBy reports whether one of the events ended the hold. Events older than the hold say nothing: a watch that a slow
// member opens begins in the past.
func (l *Lock) goneBy(events []*clientv3.Event) bool {
	key := l.c.layout.Field(l.held.Lock, metadata.FieldUUID)
	for _, e := range events {
		if string(e.Kv.Key) == key && e.Kv.ModRevision > l.held.Token &&
			(e.Type == clientv3.EventTypeDelete || string(e.Kv.Value) != l.held.UUID) {
			return true
		}
	}
	return false
}

// extendedBy takes over the deadline when another process with the uuid, a child or the parent, extended the hold.
func (l *Lock) extendedBy(events []*clientv3.Event) {
	key := l.c.layout.Field(l.held.Lock, metadata.FieldAutoUnlockAt)
	for _, e := range events {
		if e.Type == clientv3.EventTypePut && string(e.Kv.Key) == key && e.Kv.ModRevision > l.held.Token {
			l.deadlineIs(string(e.Kv.Value))
		}
	}
}

func (l *Lock) deadlineIs(text string) {
	if t, err := metadata.ParseTime(text); err == nil {
		l.putOff(t)
	}
}

// verify asks etcd whether the hold stands: nil, or how it was lost.
func (l *Lock) verify(ctx context.Context) (*LostError, error) {
	r, err := l.c.retry.Send(ctx, locktxn.Ask(l.c.layout, l.held))
	if err != nil {
		return nil, err
	}
	if r.Succeeded {
		for _, kv := range r.Keys(0).Kvs {
			l.deadlineIs(string(kv.Value))
		}
		return nil, nil
	}
	lost := l.lostError()
	lost.Ending = l.c.ending(r, 0)
	if now := l.c.record(l.held.Lock, r, 1); now.Token != 0 {
		lost.Holder = &now
	}
	return lost, nil
}

// ending is the note that the operation with this number read, nil where there is none.
func (c *Client) ending(r etcdretry.Answer, op int) *metadata.Ending {
	for _, kv := range r.Keys(op).Kvs {
		if e, err := protocol.Unmarshal[metadata.Ending](kv.Value); err == nil {
			return &e
		}
	}
	return nil
}

// lostError says that the hold is certainly gone.
func (l *Lock) lostError() *LostError {
	return &LostError{Lock: l.held.Lock, UUID: l.held.UUID, Token: l.held.Token, Certain: true, At: l.c.wall()}
}
