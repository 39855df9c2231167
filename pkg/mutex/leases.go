package mutex

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/locktxn"
	"github.com/clustermutex/unlocker/internal/locktxn/etcdretry"
	"github.com/clustermutex/unlocker/internal/protocol"
)

// idleTTL is how long a lease is kept for the next wait, and until it is kept alive again.
const idleTTL = 30 * time.Second

// revokeTimeout is how long an Unlock after Close waits for its lease to be revoked.
const revokeTimeout = 250 * time.Millisecond

// lease carries the ticket of one attempt at a time. It serves another attempt only if the previous one has ended for
// certain: a request still in flight could put its ticket back. Otherwise the lease is revoked, so that etcd refuses
// such requests.
type lease struct {
	id    clientv3.LeaseID
	ctx   context.Context // ends when the lease must not be used any more
	stop  context.CancelFunc
	kept  context.Context // ends when the lease is no longer kept alive
	since time.Time       // when it became idle
}

type leasePool struct {
	etcd       *clientv3.Client
	retry      *etcdretry.Client
	ctx        context.Context // ends when the client is closed
	background *background
	cleanups   *cleanupQueue

	all   sync.Map // of *lease
	mu    sync.Mutex
	ended bool     // close has begun
	idle  []*lease // carry no ticket; the most recently used is last
}

func (p *leasePool) takeIdle() *lease {
	p.mu.Lock()
	defer p.mu.Unlock()
	for n := len(p.idle); n > 0; n-- {
		l := p.idle[n-1]
		p.idle = p.idle[:n-1]
		if l.kept.Err() == nil {
			return l
		}
		l.stop()
		p.all.Delete(l)
	}
	return nil
}

func (p *leasePool) grant(ctx context.Context) (*lease, error) {
	id, err := p.retry.Grant(ctx, protocol.TicketTTL)
	if err != nil {
		return nil, fmt.Errorf("join the queue: %w", err)
	}
	ctx, stop := context.WithCancel(p.ctx)
	alive, err := p.etcd.KeepAlive(ctx, id)
	if err != nil {
		stop()
		return nil, fmt.Errorf("join the queue: %w", err)
	}
	kept, over := context.WithCancel(context.Background())
	l := &lease{id: id, ctx: ctx, stop: stop, kept: kept}
	p.all.Store(l, nil)
	if !p.background.spawn(func() {
		defer over()
		for range alive { // every few seconds
			p.dropIfIdle(l)
		}
	}) {
		stop()
		over()
		return nil, ErrClosed
	}
	return l, nil
}

// giveBack keeps a lease that has no keys attached for the next wait.
func (p *leasePool) giveBack(l *lease) {
	if l.ctx.Err() != nil {
		return // revoked, or about to be
	}
	p.mu.Lock()
	closing := p.ended
	if !closing {
		l.since = time.Now()
		p.idle = append(p.idle, l)
	}
	p.mu.Unlock()
	if closing {
		ctx, cancel := context.WithTimeout(context.Background(), revokeTimeout)
		defer cancel()
		_ = p.revoke(ctx, l) // else it expires
	}
}

func (p *leasePool) dropIfIdle(l *lease) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if i := slices.Index(p.idle, l); i >= 0 && time.Since(l.since) >= idleTTL {
		p.idle = slices.Delete(p.idle, i, i+1)
		p.drop(l)
	}
}

// drop revokes a lease in the background, with all keys that are or may still become attached to it.
func (p *leasePool) drop(l *lease) {
	if l.ctx.Err() != nil {
		return // revoked, or about to be
	}
	l.stop()
	p.cleanups.later("", "", protocol.TicketTTL, func(ctx context.Context) error { return p.revoke(ctx, l) })
}

func (p *leasePool) revoke(ctx context.Context, l *lease) error {
	l.stop()
	ctx, cancel := context.WithTimeout(ctx, p.retry.AttemptTimeout(ctx))
	defer cancel()
	_, err := p.etcd.Revoke(clientv3.WithRequireLeader(ctx), l.id)
	if err == nil || locktxn.IsLeaseGone(err) {
		p.all.Delete(l)
		return nil
	}
	return err
}

// close revokes all leases, so that no waiter is delayed by them. If etcd does not answer, the rest expire. A hold
// needs no lease: without the holder's ticket, the next in the queue waits for the lock itself.
func (p *leasePool) close(ctx context.Context) {
	p.mu.Lock()
	p.ended = true
	p.idle = nil
	p.mu.Unlock()
	var revoked sync.WaitGroup
	for l := range p.all.Range {
		revoked.Go(func() { _ = p.revoke(ctx, l.(*lease)) })
	}
	revoked.Wait()
}

// tombstoneWriter writes keys under the uuids of acquisitions that must not be committed any more. Many share one
// lease, which keeps each for at least ttl.
type tombstoneWriter struct {
	retry *etcdretry.Client
	ttl   time.Duration

	mu    sync.Mutex
	lease clientv3.LeaseID
	until time.Time // when the lease is too old for new tombstones
}

// grant returns a lease for tombstones. Concurrent calls may each make one.
func (t *tombstoneWriter) grant(ctx context.Context) (clientv3.LeaseID, error) {
	const shared = time.Minute
	asked := time.Now()
	t.mu.Lock()
	lease, until := t.lease, t.until
	t.mu.Unlock()
	if asked.Before(until) {
		return lease, nil
	}
	lease, err := t.retry.Grant(ctx, t.ttl+shared)
	if err != nil {
		return 0, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lease = lease
	t.until = asked.Add(shared)
	return lease, nil
}

// send commits a transaction that leaves a tombstone, and repeats it until its outcome is known, it is refused or ctx
// ends.
func (t *tombstoneWriter) send(ctx context.Context,
	txn func(clientv3.LeaseID) locktxn.Txn) (r etcdretry.Response, err error) {
	for n, indeterminate := 0, false; ; n++ {
		lease, err := t.grant(ctx)
		if err != nil {
			return etcdretry.Response{Indeterminate: indeterminate}, err
		}
		r, err = t.retry.Send(ctx, txn(lease))
		indeterminate = indeterminate || r.Indeterminate
		r.Indeterminate = indeterminate
		if !locktxn.IsLeaseGone(err) {
			return r, err
		}
		t.forget(lease)
		if !etcdretry.Sleep(ctx, etcdretry.Backoff(n)) {
			return etcdretry.Response{Indeterminate: indeterminate}, t.retry.NoAnswerError(ctx, err)
		}
	}
}

// forget makes the next tombstone get another lease, because this one is gone.
func (t *tombstoneWriter) forget(lease clientv3.LeaseID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.lease == lease {
		t.until = time.Time{}
	}
}

// releaseTTL is how long etcd remembers a release with the caller's own writes. Its client repeats it for the request
// timeout.
const releaseTTL = 10 * time.Minute
