package demo

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"os"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

// ticketLife is the lease of a ticket: what a waiter that dies costs those behind it.
const ticketLife = 10 // seconds

// acquire takes a lock, and shows a ticket while it has to wait. The client library waits without one; here tickets only tell
// people who waits.
func (p *pod) acquire(ctx context.Context, name, purpose string, opts ...mutex.Option) (*mutex.Lock, error) {
	opts = append(opts, mutex.Purpose(purpose))
	l, err := p.locks.TryLock(ctx, name, opts...)
	if _, held := errors.AsType[*mutex.HeldError](err); !held {
		return l, err
	}
	defer p.showTicket(ctx, name, purpose)()
	return p.locks.Lock(ctx, name, opts...)
}

// showTicket puts a ticket into the queue and returns what takes it away. A ticket that can not be shown is no reason not to wait.
func (p *pod) showTicket(ctx context.Context, lock, purpose string) (away func()) {
	ctx, cancel := context.WithCancel(ctx)
	lease, err := p.Etcd.Grant(ctx, ticketLife)
	if err != nil {
		return cancel
	}
	id := make([]byte, 8)
	rand.Read(id)
	now := time.Now()
	ticket := metadata.Ticket{
		UUID: "", Owner: p.owner, Hostname: p.host, PID: int64(os.Getpid()), Purpose: purpose,
		Since: metadata.Time{Time: now}, TimeoutAt: metadata.Time{Time: now.Add(24 * time.Hour)},
	}
	_, err = p.Etcd.Put(ctx, p.Layout.Ticket(lock, hex.EncodeToString(id)), metadata.Marshal(ticket), clientv3.WithLease(lease.ID))
	if err == nil {
		if alive, err := p.Etcd.KeepAlive(ctx, lease.ID); err == nil {
			go func() {
				for range alive { // until ctx ends
				}
			}()
		}
	}
	return func() {
		cancel()
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		p.Etcd.Revoke(ctx, lease.ID) // else the ticket goes with its lease
	}
}
