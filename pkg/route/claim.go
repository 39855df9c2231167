package route

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/clustermutex/unlocker/internal/etcdretry"
	"github.com/clustermutex/unlocker/internal/locktxn"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

// The attributes of a claim: where the lock has moved, and with which move of its segment.
const (
	AttributeTo   = "route_to"
	AttributeMove = "route_move"
)

// claimLife is how long a claim lasts, the longest time that a lock can be held: a move is finished long before.
const claimLife = 10 * 365 * 24 * time.Hour

// Claim is a record with which a move holds a lock in the cluster that the lock has left.
type Claim struct {
	Lock  string
	To    string // text from outside
	Move  int
	Token int64 // see [mutex.Lock.Token]
	uuid  string
}

// ClaimOf returns the claim that a record is, nil if it is somebody's hold, or nobody's.
func ClaimOf(r *metadata.Record) *Claim {
	if r.Token == 0 {
		return nil
	}
	var move int
	switch v := r.Attributes[AttributeMove].(type) {
	case json.Number:
		move, _ = strconv.Atoi(v.String())
	case string: // raised: a key of its own
		move, _ = strconv.Atoi(v)
	}
	if move < 1 {
		return nil
	}
	to, _ := r.Attributes[AttributeTo].(string)
	return &Claim{Lock: r.Name, To: to, Move: move, Token: r.Token, uuid: r.UUID}
}

// seen is a claim as it was read, with what a change of it compares.
type seen struct {
	Claim
	stamp int64 // mod revision of the key of its move, 0 if that is part of the document
}

func (s *seen) hold() locktxn.Hold { return locktxn.Hold{Lock: s.Lock, UUID: s.uuid, Token: s.Token} }

// raise makes it the claim of a later move.
func (s *seen) raise(l protocol.Layout, r Route) locktxn.Txn {
	return locktxn.RaiseClaim(l, s.hold(), s.stamp, []metadata.Field{
		{Name: AttributeMove, Value: strconv.Itoa(r.Move)}, {Name: AttributeTo, Value: r.Cluster},
		{Name: "purpose", Value: purpose(r)},
	})
}

// look returns the claim on a lock, nil if there is none, and the revision of etcd.
func look(ctx context.Context, l *mutex.Client, layout protocol.Layout, lock string) (*seen, int64, error) {
	r, err := l.Etcd().Send(ctx, locktxn.ReadRecord(layout, lock))
	if err != nil {
		return nil, 0, err
	}
	doc := metadata.Decode(lock, locktxn.Fields(layout, r.Keys(0)))
	claim := ClaimOf(&doc.Record)
	if claim == nil {
		return nil, r.Header.Revision, nil
	}
	s := &seen{Claim: *claim}
	for _, f := range doc.Fields {
		if f.Name == AttributeMove {
			s.stamp = f.ModRevision
		}
	}
	return s, r.Header.Revision, nil
}

// Forget removes the claim on a lock that a move of its segment left, if there is one, it is of the move upTo at most,
// and nobody changes it meanwhile. It reports whether it did.
//
// Call it only for a move that is finished: no client has a table from before it, and no lock of the segment is held in
// the old cluster. Otherwise the lock may get two holders.
func Forget(ctx context.Context, locks *mutex.Client, lock string, upTo int) (bool, error) {
	layout, err := protocol.NewLayout(locks.Options().Prefix)
	if err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(ctx, locks.Options().RequestTimeout)
	defer cancel()
	s, _, err := look(ctx, locks, layout, lock)
	if err != nil || s == nil || s.Move > upTo {
		return false, err
	}
	r, err := locks.Etcd().Send(ctx, locktxn.RemoveClaim(layout, s.hold(), AttributeMove, s.stamp))
	return err == nil && r.Succeeded, err
}

// claim makes sure that the move of a route holds the lock in the old cluster.
func (c *Client) claim(ctx context.Context, p *plan, lock string, r Route, wait bool) error {
	if c.claims.has(lock, r) {
		return nil
	}
	from := c.clusters[r.From]
	for {
		s, _, err := look(ctx, from.locks, from.layout, lock)
		switch {
		case err != nil:
			return fmt.Errorf("lock %q: read it in cluster %q, from which it moves: %w", lock, r.From, err)
		case s == nil:
			err = c.reserve(ctx, p, from, lock, r, wait)
		case s.Move > r.Move:
			return &claimed{s.Claim}
		case s.Move < r.Move:
			_, err = from.locks.Etcd().Send(ctx, s.raise(from.layout, r))
		default:
			return c.counts(ctx, s, r)
		}
		var other *claimed
		if err != nil && !errors.As(err, &other) {
			return err
		}
	}
}

func purpose(r Route) string {
	return fmt.Sprintf("moved to cluster %s, by move %d", r.Cluster, r.Move)
}

// reserve takes the lock for the move, in the old cluster.
func (c *Client) reserve(ctx context.Context, p *plan, from cluster, lock string, r Route, wait bool) error {
	opts := []mutex.Option{mutex.Attribute(AttributeTo, r.Cluster), mutex.Attribute(AttributeMove, r.Move)}
	if _, _, share := metadata.ParseShare(lock); !share {
		opts = append(opts, mutex.Exclusive()) // of a semaphore or read-write lock all shares
	}
	reserve := func(ctx context.Context) (mutex.Reservation, error) {
		if wait {
			return from.locks.Reserve(ctx, lock, purpose(r), claimLife, opts...)
		}
		return from.locks.TryReserve(ctx, lock, purpose(r), claimLife, opts...)
	}
	_, err := attempt(ctx, c, p, site{from, []string{lock}}, wait, reserve)
	return err
}

// counts makes sure that tokens grow when the lock is taken in the new cluster, and remembers the claim.
func (c *Client) counts(ctx context.Context, s *seen, r Route) error {
	home := c.clusters[r.Cluster]
	if !r.TokensMayFall {
		_, revision, err := look(ctx, home.locks, home.layout, s.Lock)
		if err != nil {
			return fmt.Errorf("lock %q: read it in cluster %q: %w", s.Lock, r.Cluster, err)
		}
		if revision < s.Token {
			return &TokenError{Lock: s.Lock, Cluster: r.Cluster, From: r.From, Revision: revision, Token: s.Token}
		}
	}
	c.claims.add(s.Lock, r)
	return nil
}

// cache has the claims that are known to have been made. A claim may be gone since, but only after a later move held
// the lock in the cluster where this client would take it.
type cache struct {
	mu    sync.Mutex
	moves map[string]int
}

const cacheSize = 1 << 16 // names; then it begins anew

func (k *cache) has(lock string, r Route) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.moves[r.From+"/"+lock] == r.Move
}

func (k *cache) add(lock string, r Route) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.moves == nil || len(k.moves) >= cacheSize {
		k.moves = map[string]int{}
	}
	k.moves[r.From+"/"+lock] = r.Move
}

// claimed says that a claim is in the way.
type claimed struct{ Claim }

func (e *claimed) Error() string { return fmt.Sprintf("lock %q is held by move %d", e.Lock, e.Move) }

// lookEvery is how often a waiter looks whether a claim is in its way.
const lookEvery = time.Second

// attend ends a wait whose lock has moved, or is claimed by a move.
func (c *Client) attend(ctx context.Context, p *plan, at site, stop context.CancelCauseFunc) {
	tick := time.NewTimer(etcdretry.Jitter(2 * lookEvery))
	defer tick.Stop()
	for v := p.version; ; {
		select {
		case <-ctx.Done():
			return
		case <-v.changed:
			if v = c.version(); !p.same(v.table) {
				stop(errRerouted)
				return
			}
		case <-tick.C:
			for _, lock := range at.claimable {
				if s, _, err := look(ctx, at.locks, at.layout, lock); err == nil && s != nil {
					stop(&claimed{s.Claim})
					return
				}
			}
			tick.Reset(etcdretry.Jitter(2 * lookEvery))
		}
	}
}
