package lockstore

import (
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/locktxn"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// Head is where etcd stood when it took a write.
type Head struct {
	Revision int64
	RaftTerm uint64 // another term means that etcd had no leader in between
}

// Announce writes the presence record of a running unlocker, which goes away 10 to 15 s after the last one. It fails where etcd
// takes no writes: then holders can not extend their locks either.
func (s *Store) Announce(ctx context.Context, p metadata.Presence) (Head, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	for try := 0; ; try++ {
		lease, err := s.presence.current(ctx, 0) // it is the same key again
		if err != nil {
			return Head{}, fmt.Errorf("announce %s: %w", p.ID, err)
		}
		resp, err := s.etcd.Put(ctx, s.layout.Unlocker(p.ID), metadata.Marshal(p), clientv3.WithLease(lease))
		switch {
		case err == nil:
			return Head{Revision: resp.Header.Revision, RaftTerm: resp.Header.RaftTerm}, nil
		case !locktxn.LeaseGone(err) || try > 0:
			return Head{}, fmt.Errorf("announce %s: %w", p.ID, err)
		}
		s.presence.gone(lease)
	}
}

// Leave deletes the presence record of an unlocker that ends.
func (s *Store) Leave(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if _, err := s.etcd.Delete(ctx, s.layout.Unlocker(id)); err != nil {
		return fmt.Errorf("leave as %s: %w", id, err)
	}
	return nil
}
