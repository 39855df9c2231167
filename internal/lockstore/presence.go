package lockstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"

	"github.com/clustermutex/unlocker/internal/locktxn"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// Announce writes the presence record of a running unlocker, which expires 10 to 15 s after the last write. It returns
// etcd's revision and raft term; a new term means that etcd had no leader in between. It fails if etcd accepts no
// writes: then holders cannot extend their locks either.
//
// If a member is unavailable, or after half of the time, it writes once more, to another member: an outage of one
// member must not look like an outage of etcd.
func (s *Store) Announce(ctx context.Context, p metadata.Presence) (revision int64, raftTerm uint64, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	end, _ := ctx.Deadline()
	late := time.After(time.Until(end) / 2)
	type answer struct {
		*clientv3.PutResponse
		err error
	}
	answers := make(chan answer, 3) // slower answers are not waited for
	pending := 0
	write := func() {
		pending++
		go func() {
			resp, err := s.announce(ctx, p)
			answers <- answer{resp, err}
		}()
	}
	write()
	for again := 2; ; {
		select {
		case <-late:
			write()
		case a := <-answers:
			pending--
			switch {
			case a.err == nil:
				return a.Header.Revision, a.Header.RaftTerm, nil
			case again > 0 && (locktxn.IsLeaseGone(a.err) || locktxn.Code(a.err) == codes.Unavailable):
				again--
				write()
			case pending == 0:
				return 0, 0, fmt.Errorf("announce %s: %w", p.ID, a.err)
			}
		}
	}
}

func (s *Store) announce(ctx context.Context, p metadata.Presence) (*clientv3.PutResponse, error) {
	lease, err := s.presence.current(ctx, 0) // the same key again
	if err != nil {
		return nil, err
	}
	resp, err := s.etcd.Put(ctx, s.layout.Unlocker(p.ID), protocol.Marshal(p), clientv3.WithLease(lease))
	if locktxn.IsLeaseGone(err) {
		s.presence.discard(lease)
	}
	return resp, err
}

// DeletePresence deletes the presence record of an unlocker that shuts down.
func (s *Store) DeletePresence(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if _, err := s.etcd.Delete(ctx, s.layout.Unlocker(id)); err != nil {
		return fmt.Errorf("leave as %s: %w", id, err)
	}
	return nil
}

// LeaseTTL returns the time to live with which the lease was granted; 0 if it has ended, or is hidden from us because
// we may not read some of its keys.
func (s *Store) LeaseTTL(ctx context.Context, lease int64) (time.Duration, error) {
	l, err := s.ReadLease(ctx, lease)
	switch {
	case errors.Is(err, rpctypes.ErrPermissionDenied):
		return 0, nil
	case err != nil || !l.Expires.After(l.ReadAt):
		return 0, err
	}
	return l.TTL, nil
}

// ReadLease reads a lease. It needs the permission to read all of its keys.
func (s *Store) ReadLease(ctx context.Context, id int64) (protocol.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	resp, err := s.etcd.TimeToLive(ctx, clientv3.LeaseID(id), clientv3.WithAttachedKeys())
	if err != nil {
		return protocol.Lease{}, fmt.Errorf("look at lease %x: %w", id, err)
	}
	now := time.Now()
	return protocol.Lease{ID: id, TTL: time.Duration(resp.GrantedTTL) * time.Second,
		Expires: now.Add(time.Duration(resp.TTL) * time.Second), Keys: len(resp.Keys), ReadAt: now}, nil
}
