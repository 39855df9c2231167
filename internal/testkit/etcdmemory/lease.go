package etcdmemory

import (
	"context"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// firstAnswer is how long keepalives are tried before the first answer gives the lease's time to live.
const firstAnswer = 5 * time.Second

// leaseKeeper implements clientv3.Lease. That of clientv3 ticks twice a second, which is too often where days pass
// at once.
type leaseKeeper struct{ *background }

var _ clientv3.Lease = leaseKeeper{}

func (k leaseKeeper) Grant(ctx context.Context, ttl int64) (*clientv3.LeaseGrantResponse, error) {
	return ask(ctx, k, func(s *Server) (*clientv3.LeaseGrantResponse, error) {
		s.granted++
		l := &lease{id: s.granted, ttl: time.Duration(max(ttl, 1)) * time.Second, keys: map[string]bool{}}
		s.leases[l.id] = l
		l.timer = time.AfterFunc(l.ttl, func() { s.expire(l) })
		l.until = time.Now().Add(l.ttl)
		return &clientv3.LeaseGrantResponse{ResponseHeader: s.header(), ID: l.id, TTL: int64(l.ttl / time.Second)}, nil
	})
}

// ask makes the server answer a request, unless the client is cut off.
func ask[R any](ctx context.Context, k leaseKeeper, answer func(*Server) (*R, error)) (*R, error) {
	if err := k.link.pass(ctx); err != nil {
		return nil, clientv3.ContextError(ctx, err)
	}
	s := k.link.server
	s.mu.Lock()
	defer s.mu.Unlock()
	return answer(s)
}

func (s *Server) header() *pb.ResponseHeader { return &pb.ResponseHeader{Revision: s.revision} }

// expire ends a lease, unless it was kept alive meanwhile.
func (s *Server) expire(l *lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.leases[l.id] == nil:
	case time.Now().Before(l.until):
		l.timer.Reset(time.Until(l.until))
	default:
		s.end(l)
	}
}

func (k leaseKeeper) Revoke(ctx context.Context, id clientv3.LeaseID) (*clientv3.LeaseRevokeResponse, error) {
	return ask(ctx, k, func(s *Server) (*clientv3.LeaseRevokeResponse, error) {
		l := s.leases[id]
		if l == nil {
			return nil, rpctypes.ErrLeaseNotFound
		}
		s.end(l)
		return &clientv3.LeaseRevokeResponse{Header: s.header()}, nil
	})
}

func (k leaseKeeper) KeepAliveOnce(ctx context.Context,
	id clientv3.LeaseID) (*clientv3.LeaseKeepAliveResponse, error) {
	return ask(ctx, k, func(s *Server) (*clientv3.LeaseKeepAliveResponse, error) {
		l := s.leases[id]
		if l == nil {
			return nil, rpctypes.ErrLeaseNotFound
		}
		l.until = time.Now().Add(l.ttl)
		l.timer.Reset(l.ttl)
		return &clientv3.LeaseKeepAliveResponse{ResponseHeader: s.header(), ID: id,
			TTL: int64(l.ttl / time.Second)}, nil
	})
}

// KeepAlive keeps the lease alive until ctx ends, the client is closed or the lease is gone; then the channel is
// closed.
func (k leaseKeeper) KeepAlive(ctx context.Context,
	id clientv3.LeaseID) (<-chan *clientv3.LeaseKeepAliveResponse, error) {
	if k.ctx.Err() != nil {
		return nil, clientv3.ErrKeepAliveHalted{Reason: k.ctx.Err()}
	}
	alive := make(chan *clientv3.LeaseKeepAliveResponse, 16)
	k.wg.Go(func() {
		defer close(alive)
		k.keep(ctx, id, alive)
	})
	return alive, nil
}

// keep begins without a timer: the race detector of Go 1.26 may crash when many goroutines of a synctest bubble receive
// from timers that are already due.
func (k leaseKeeper) keep(ctx context.Context, id clientv3.LeaseID, alive chan<- *clientv3.LeaseKeepAliveResponse) {
	last := time.Now()
	ttl := firstAnswer
	for {
		next := 500 * time.Millisecond
		r, err := k.KeepAliveOnce(ctx, id)
		switch {
		case err == nil:
			last = time.Now()
			ttl = time.Duration(r.TTL) * time.Second
			next = ttl / 3
			select {
			case alive <- r:
			default: // the channel is not read
			}
		case err == rpctypes.ErrLeaseNotFound, time.Since(last) >= ttl:
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-k.ctx.Done():
			return
		case <-time.After(next):
		}
	}
}

func (k leaseKeeper) TimeToLive(ctx context.Context, id clientv3.LeaseID,
	_ ...clientv3.LeaseOption) (*clientv3.LeaseTimeToLiveResponse, error) {
	return ask(ctx, k, func(s *Server) (*clientv3.LeaseTimeToLiveResponse, error) {
		r := &clientv3.LeaseTimeToLiveResponse{ResponseHeader: s.header(), ID: id, TTL: -1}
		if l := s.leases[id]; l != nil {
			r.TTL = int64(time.Until(l.until) / time.Second)
			r.GrantedTTL = int64(l.ttl / time.Second)
		}
		return r, nil
	})
}

func (k leaseKeeper) Leases(ctx context.Context) (*clientv3.LeaseLeasesResponse, error) {
	return ask(ctx, k, func(s *Server) (*clientv3.LeaseLeasesResponse, error) {
		r := &clientv3.LeaseLeasesResponse{ResponseHeader: s.header()}
		for id := range s.leases {
			r.Leases = append(r.Leases, clientv3.LeaseStatus{ID: id})
		}
		return r, nil
	})
}
