package mutex

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/clustermutex/unlocker/internal/locktxn"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// reportEvery is how often a waiter with [OnWait] looks how the queue stands, at most.
const reportEvery = time.Second

// A look asks for so many of the tickets before it, however many there are: the nearest to their turns, and in turn
// some of the others.
const (
	nearTickets = 4
	farTickets  = 4
)

// Waiting is how the wait for a lock stands.
type Waiting struct {
	Lock     string
	Position int // in the queue: 1 is next; 0 without a place
	// who holds the lock; its Token is 0 when nobody does. Whatever the holder's client wrote, so escape it
	Holder  metadata.Document
	Holders []metadata.Document // all holders of a lock that several can hold, the oldest first
	Since   time.Time           // when the wait began
	At      time.Time           // of this look, wall clock
}

// report calls the callback of [OnWait] from now on, whenever the holder or the position is another than at its last
// call, until stop is called. No call is under way when stop returns.
func (a *acquisition) report(ctx context.Context) (stop func()) {
	if a.set.onWait == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	v := &standing{c: a.c, place: a.line.place, kind: a.set.kind}
	v.place.Lock = a.lock
	var done sync.WaitGroup
	done.Go(func() {
		for again := true; again; again = pause(ctx, reportEvery+rand.N(reportEvery/2)) {
			w, err := v.look(ctx)
			news := w.Position != a.told.Position || w.Holder.Token != a.told.Holder.Token ||
				!sameHolds(w.Holders, a.told.Holders) || a.told.At.IsZero()
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

// standing is what a waiter with [OnWait] knows of the holders and of those before it. It reads the queue once. From
// then on a look asks whether the holders are the same and for a few tickets, so that its work does not grow with the
// queue. Who has taken a turn tells that all who were before it are gone; those who give up far ahead are noticed when
// it is their turn to be asked for.
type standing struct {
	c     *Client
	place locktxn.Position // none has a Revision of 0
	kind  kind

	seen   int64 // revision at which the holders were read; 0 before the first look
	writer int64 // token of the record of the lock, then
	keys   int   // of shares, then
	now    Waiting
	ahead  []string // tickets before it that may still be there, the oldest first
	far    int      // which of the far ones is asked for next
}

// look asks how things stand for whoever has this place.
func (v *standing) look(ctx context.Context) (Waiting, error) {
	probes := v.probes()
	r, err := v.c.send(ctx, v.question(probes))
	if err != nil {
		return Waiting{}, err
	}
	tickets := len(r.Responses) - len(probes)
	switch {
	case v.seen == 0:
		older := r.keys(tickets - 1).Kvs
		for _, kv := range slices.Backward(older) {
			v.ahead = append(v.ahead, v.c.layout.Parse(string(kv.Key)).ID)
		}
		v.read(r)
	case !r.Succeeded:
		v.read(r)
	case v.kind.shared() && int(r.keys(0).Count) != v.keys: // somebody gave a share back
		if r, err := v.c.send(ctx, locktxn.Holders(v.c.layout, v.place.Lock)); err == nil {
			v.read(r)
		}
	}
	for i, uuid := range probes {
		if r.keys(tickets+i).Count == 0 {
			v.ahead = slices.DeleteFunc(v.ahead, func(other string) bool { return other == uuid })
		}
	}
	v.now.At = v.c.wall()
	if v.place.Revision != 0 {
		v.now.Position = len(v.ahead) + 1
	}
	return v.now, nil
}

// question is what to ask at the next look.
func (v *standing) question(probes []string) locktxn.Txn {
	switch {
	case v.seen == 0 && v.kind.shared():
		return locktxn.StandingShare(v.c.layout, v.place)
	case v.seen == 0:
		return locktxn.Standing(v.c.layout, v.place)
	}
	known := locktxn.Known{Lock: v.place.Lock, Token: v.writer, Shares: v.kind.shared(), Revision: v.seen}
	return locktxn.StandingStill(v.c.layout, known, probes)
}

// probes are the tickets to ask for.
func (v *standing) probes() []string {
	near := min(nearTickets, len(v.ahead))
	probes := slices.Clone(v.ahead[:near])
	far := v.ahead[near:]
	for range min(farTickets, len(far)) {
		v.far++
		probes = append(probes, far[v.far%len(far)])
	}
	return probes
}

// read takes the holders from an answer, which tells them first.
func (v *standing) read(r answer) {
	v.seen = r.Header.Revision
	v.now = Waiting{Lock: v.place.Lock, Position: v.now.Position, Holder: v.c.record(v.place.Lock, r, 0)}
	v.writer = v.now.Holder.Token
	if v.kind.shared() {
		v.keys = len(r.keys(1).Kvs)
		h := v.c.holders(v.place.Lock, r, 0)
		if v.now.Holders = h.all(); len(v.now.Holders) > 0 {
			v.now.Holder = v.now.Holders[0]
		}
	}
	for _, holder := range append(v.now.Holders, v.now.Holder) {
		if i := slices.Index(v.ahead, holder.UUID); i >= 0 {
			v.ahead = v.ahead[i+1:]
		}
	}
}

func sameHolds(a, b []metadata.Document) bool {
	return slices.EqualFunc(a, b, func(x, y metadata.Document) bool { return x.Token == y.Token })
}

// position is a place in the queue by what the operation with this number read: the tickets before it. That of the
// holder does not wait.
func (c *Client) position(r answer, op int, holder string) int {
	n := 1
	for _, kv := range r.keys(op).Kvs {
		if c.layout.Parse(string(kv.Key)).ID != holder {
			n++
		}
	}
	return n
}
