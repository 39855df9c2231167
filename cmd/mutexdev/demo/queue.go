package demo

import (
	"context"
	"os"
	"sync"
	"time"

	"github.com/google/uuid"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/pkg/metadata"
)

// ticketLife is the lease of a ticket: what a waiter that dies costs those behind it.
const ticketLife = 10 // seconds

// showTicket puts a ticket into the queue of a lock that is held, and returns what takes it away. The client library waits without
// a ticket; here it only tells people who waits, so one that can not be shown is no reason not to wait.
func (p *pod) showTicket(ctx context.Context, lock, purpose string) (away func()) {
	held, err := p.Etcd.Get(ctx, p.Layout.Field(lock, metadata.FieldUUID), clientv3.WithCountOnly())
	if err != nil || held.Count == 0 {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	lease, err := p.Etcd.Grant(ctx, ticketLife)
	if err != nil {
		return cancel
	}
	now := time.Now()
	ticket := metadata.Ticket{
		UUID: uuid.NewString(), Owner: p.owner, Hostname: p.host, PID: int64(os.Getpid()), Purpose: purpose,
		Since: metadata.Time{Time: now}, TimeoutAt: metadata.Time{Time: now.Add(24 * time.Hour)},
	}
	if _, err := p.Etcd.Put(ctx, p.Layout.Ticket(lock, ticket.UUID), metadata.Marshal(ticket), clientv3.WithLease(lease.ID)); err == nil {
		p.keep(ctx, lease.ID)
	}
	return sync.OnceFunc(func() {
		cancel()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		if _, err := p.Etcd.Revoke(ctx, lease.ID); err != nil {
			p.Log.Debug().Err(err).Msg("the ticket goes with its lease")
		}
	})
}

// keep extends the lease until ctx ends.
func (p *pod) keep(ctx context.Context, lease clientv3.LeaseID) {
	if answers, err := p.Etcd.KeepAlive(ctx, lease); err == nil {
		go func() {
			for range answers { // has to be read
			}
		}()
	}
}
