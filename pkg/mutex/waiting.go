package mutex

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/clustermutex/unlocker/internal/locktxn"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// reportEvery is how often a waiter with [OnWait] looks how the queue stands.
const reportEvery = time.Second

// Waiting is how the wait for a lock stands.
type Waiting struct {
	Lock     string
	Position int                 // in the queue: 1 is next; 0 without a place
	Holder   metadata.Document   // who holds the lock; its Token is 0 when nobody does. Whatever the holder's client wrote, so escape it
	Holders  []metadata.Document // all holders of a lock that several can hold, the oldest first
	Since    time.Time           // when the wait began
	At       time.Time           // of this look, wall clock
}

// report calls the callback of [OnWait] from now on, whenever the holder or the position is another than at its last call, until stop
// is called. No call is under way when stop returns.
func (a *acquisition) report(ctx context.Context) (stop func()) {
	if a.set.onWait == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	place := a.line.place
	place.Lock = a.lock
	var done sync.WaitGroup
	done.Go(func() {
		for again := true; again; again = pause(ctx, jitter(reportEvery)) {
			w, err := a.c.standing(ctx, place, a.set.kind)
			news := w.Position != a.told.Position || w.Holder.Token != a.told.Holder.Token || !sameHolds(w.Holders, a.told.Holders) || a.told.At.IsZero()
			if err != nil || !news || ctx.Err() != nil {
				continue
			}
			if w.Since = a.told.Since; w.Since.IsZero() {
				w.Since = w.At
			}
			a.told = w
			a.set.onWait(w)
		}
	})
	return func() { cancel(); done.Wait() }
}

// standing asks how things stand for whoever has this place, which may be none.
func (c *Client) standing(ctx context.Context, p locktxn.Place, k kind) (Waiting, error) {
	standing, tickets := locktxn.Standing, 1
	if k.shared() {
		standing, tickets = locktxn.StandingShare, 2
	}
	r, err := c.send(ctx, standing(c.layout, p))
	if err != nil {
		return Waiting{}, err
	}
	w := Waiting{Lock: p.Lock, Holder: c.record(p.Lock, r, 0), At: c.wall()}
	if k.shared() {
		h := c.holders(p.Lock, r, 0)
		if w.Holders = h.all(); len(w.Holders) > 0 {
			w.Holder = w.Holders[0]
		}
	}
	if p.Revision != 0 {
		w.Position = c.position(r, tickets, w.Holder.UUID)
	}
	return w, nil
}

func sameHolds(a, b []metadata.Document) bool {
	return slices.EqualFunc(a, b, func(x, y metadata.Document) bool { return x.Token == y.Token })
}

// position is a place in the queue by what the operation with this number read: the tickets before it. That of the holder does not
// wait.
func (c *Client) position(r answer, op int, holder string) int {
	n := 1
	for _, kv := range r.keys(op).Kvs {
		if c.layout.Parse(string(kv.Key)).ID != holder {
			n++
		}
	}
	return n
}
