package mutex

import (
	"context"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/etcdretry"
	"github.com/clustermutex/unlocker/internal/locktxn"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// plainClaim claims a lock that one can hold.
type plainClaim struct{ a *acquisition }

func (p plainClaim) try(ctx context.Context, b bid, _ int) (*Lock, error) {
	a := p.a
	l, err := p.acquire(ctx, b, a.set.barge)
	if l != nil || err != nil {
		return l, err
	}
	a.abandonInDoubt()
	if a.holder.Token != 0 || a.holders.delay != nil {
		return nil, a.heldError()
	}
	return a.tryPast(ctx)
}

func (p plainClaim) acquire(ctx context.Context, b bid, barge bool) (*Lock, error) {
	a := p.a
	txn := locktxn.Acquire(a.c.layout, a.lock, a.draft.UUID, b.fields, barge)
	txn.Only = a.lock
	l, _, err := a.commit(ctx, b, a.lock, txn)
	return l, err
}

func (p plainClaim) tryPast(ctx context.Context, b bid, tail int64) (*Lock, error) {
	a := p.a
	l, _, err := a.commit(ctx, b, a.lock, locktxn.AcquirePast(a.c.layout, a.lock, a.draft.UUID, b.fields, tail))
	if l == nil && err == nil {
		a.abandonInDoubt()
		err = a.heldError()
	}
	return l, err
}

func (p plainClaim) ends() []etcdretry.Watched {
	keys := []etcdretry.Watched{etcdretry.Deleted(p.a.c.layout.Field(p.a.lock, metadata.FieldUUID))}
	if p.a.holders.delayed() {
		keys = append(keys, etcdretry.Deleted(p.a.c.layout.Delay(p.a.lock)))
	}
	return keys
}

func (p plainClaim) standing() locktxn.Txn {
	return locktxn.ReadStanding(p.a.c.layout, p.a.lock)
}

func (p plainClaim) standingOf(r etcdretry.Answer) (holders, int) {
	return holders{revision: r.Header.Revision, writer: p.a.c.record(p.a.lock, r, 0),
		delay: p.a.c.delay(p.a.lock, r, 1)}, 2
}

func (plainClaim) keepsTicket() bool { return true }

func (plainClaim) inBatch() bool { return true }

func (p plainClaim) explain(held *HeldError) { held.Delay = p.a.holders.delay }

func (plainClaim) inTheWay(of []metadata.Document) []metadata.Document { return of }

func (p plainClaim) known(h holders) locktxn.Known {
	return locktxn.Known{Lock: p.a.lock, Token: h.writer.Token, Delay: h.delayRevision(), Revision: h.revision}
}

func (p plainClaim) cancel(ctx context.Context, uuid string) error {
	c := p.a.c
	lock := p.a.lock
	_, err := c.cancelAttempt(ctx, func(lease clientv3.LeaseID) locktxn.Txn {
		return locktxn.CancelQueued(c.layout, lock, uuid, lease)
	}, locktxn.WithdrawQueued(c.layout, lock, uuid))
	return err
}

// join takes one request where a lease is at hand. A client whose locks nobody else wants never asks for one.
//
// Where the client has a waiter already, the lock is held for all that is known: then nothing tries to take it.
func (p plainClaim) join(ctx context.Context, b bid) (*Lock, error) {
	a := p.a
	waited := a.c.leases.places.any(a.lock)
	if a.queue.lease == nil {
		a.queue.lease = a.c.leases.takeIdle()
	}
	if a.queue.lease == nil {
		if !waited {
			l, err := p.acquire(ctx, b, false)
			if l != nil || err != nil {
				return l, err
			}
			a.abandonInDoubt() // a late commit could pass those before this waiter, and both would wait for each other
		}
		var err error
		if a.queue.lease, err = a.c.leases.grant(ctx); err != nil {
			return nil, err
		}
		if b, err = a.bid(); err != nil {
			return nil, err
		}
	}
	a.queue.ticket = a.newTicket(ctx, b)
	a.c.leases.places.begin(a.queue.lease, a.lock, a.draft.UUID)
	l, r, err := p.enqueue(ctx, b, waited)
	switch {
	case locktxn.LeaseGone(err):
		a.leaveLater()
		return nil, errStale
	case l != nil || err != nil:
		return l, err
	}
	position := locktxn.Position{Lock: a.lock, UUID: a.draft.UUID}
	if position.Revision, a.queue.before = locktxn.Joined(r.TxnResponse); position.Revision == 0 {
		return nil, errPositionLost
	}
	a.queue.position = position
	return nil, nil
}

// enqueue takes the lock or joins its queue; behind others it sends its ticket only.
func (p plainClaim) enqueue(ctx context.Context, b bid, behind bool) (*Lock, etcdretry.Answer, error) {
	a := p.a
	if !behind {
		return a.commit(ctx, b, a.lock, locktxn.Enqueue(a.c.layout, a.lock, a.draft.UUID, b.fields, a.queue.ticket,
			a.queue.lease.id))
	}
	r, err := a.propose(ctx, locktxn.Join(a.c.layout, a.lock, a.draft.UUID, a.queue.ticket, a.queue.lease.id))
	if err == nil {
		a.meet(r)
	}
	return nil, r, err
}

func (p plainClaim) inherit(ctx context.Context, early bool) (*Lock, error) {
	if !early {
		return p.takeTurn(ctx)
	}
	l, r, err := p.sendTurn(ctx)
	if l == nil && err == nil && len(r.Keys(2).Kvs) == 0 {
		err = errPositionLost
	}
	return l, err
}

func (p plainClaim) advance(ctx context.Context, events []*clientv3.Event) (*Lock, error) {
	a := p.a
	if len(events) == 0 {
		return p.checkAhead(ctx)
	}
	own := a.c.layout.Ticket(a.lock, a.draft.UUID)
	for _, e := range events {
		switch {
		case e.Type != clientv3.EventTypeDelete || e.Kv.ModRevision <= a.seen:
		case string(e.Kv.Key) == own:
			return nil, errPositionLost
		case a.queue.before == "" && a.queue.first, a.queue.before != "" && holding(e.PrevKv):
			return p.takeTurn(ctx)
		default: // the one before it gave up or died; there may be others before that
			return p.checkAhead(ctx)
		}
	}
	return nil, nil
}

// holding reports whether a ticket bears the mark of a holder: then its deletion means that the lock was handed over.
func holding(ticket *mvccpb.KeyValue) bool {
	if ticket == nil {
		return false
	}
	t, err := protocol.Unmarshal[metadata.Ticket](ticket.Value)
	return err == nil && t.Holding
}

// checkAhead finds the ticket before this one, and takes the lock if there is none and it is free.
func (p plainClaim) checkAhead(ctx context.Context) (*Lock, error) {
	a := p.a
	txn := locktxn.ReadAhead(a.c.layout, a.queue.position, a.queue.before)
	if a.queue.first {
		txn = locktxn.ReadFirst(a.c.layout, a.queue.position)
	}
	r, err := a.c.retry.Send(ctx, txn)
	if err != nil {
		return nil, err
	}
	a.seen = r.Header.Revision
	switch older := r.Keys(3).Kvs; {
	case len(r.Keys(0).Kvs) == 0:
		return nil, errPositionLost
	case !r.Succeeded: // the one before it still is
		a.keepTail(ctx, r, 2)
		return nil, nil
	case len(older) > 0:
		a.queue.before = a.c.layout.Parse(string(older[0].Key)).ID
		a.keepTail(ctx, r, 2)
		return nil, nil
	}
	a.queue.first = true
	if holder := r.Keys(1).Kvs; len(holder) > 0 && string(holder[0].Value) != a.draft.UUID {
		a.queue.before = ""
		a.keepTail(ctx, r, 2)
		return nil, nil
	}
	return p.takeTurn(ctx) // which also finds out that an earlier sending of it got through
}

// takeTurn takes the lock that was handed over, or that the first in the queue found free.
func (p plainClaim) takeTurn(ctx context.Context) (*Lock, error) {
	a := p.a
	l, r, err := p.sendTurn(ctx)
	switch {
	case l != nil || err != nil:
		return l, err
	case len(r.Keys(2).Kvs) == 0 || a.holder.Token == 0 && a.holders.delay == nil:
		return nil, errPositionLost
	}
	// There is a lock delay, or a client that does not queue came between, or the ticket of a holder ended before its
	// hold.
	a.queue.first = true
	a.queue.before = ""
	a.keepTail(ctx, r, 3)
	return nil, nil
}

// sendTurn takes the lock if those ahead are gone and it is free.
func (p plainClaim) sendTurn(ctx context.Context) (*Lock, etcdretry.Answer, error) {
	a := p.a
	b, err := a.bid()
	if err != nil {
		return nil, etcdretry.Answer{}, err
	}
	txn := locktxn.TakeTurn(a.c.layout, a.queue.position, a.queue.before, b.fields, a.queue.ticket, a.queue.lease.id)
	return a.commit(ctx, b, a.lock, txn)
}
