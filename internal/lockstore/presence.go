package lockstore

import (
	"context"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/locktxn"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// Head is where etcd stood when it took a write.
type Head struct {
	Revision int64
	RaftTerm uint64 // another term means that etcd had no leader in between
}

// Announce writes the presence record of a running unlocker, which goes away 10 to 15 s after the last one. It fails
// where etcd takes no writes: then holders can not extend their locks either.
//
// After half of the time it writes once more, which goes to another member: one that hangs must not look like an etcd
// that does.
func (s *Store) Announce(ctx context.Context, p metadata.Presence) (Head, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	end, _ := ctx.Deadline()
	late := time.NewTimer(time.Until(end) / 2)
	defer late.Stop()
	type answer struct {
		head Head
		err  error
	}
	answers := make(chan answer, 3) // nobody waits for the slower ones
	pending := 0
	write := func() {
		pending++
		go func() {
			head, err := s.announce(ctx, p)
			answers <- answer{head, err}
		}()
	}
	write()
	for leases := 1; ; {
		select {
		case <-late.C:
			write()
		case a := <-answers:
			pending--
			switch {
			case a.err == nil:
				return a.head, nil
			case locktxn.LeaseGone(a.err) && leases > 0:
				leases--
				write()
			case pending == 0:
				return Head{}, fmt.Errorf("announce %s: %w", p.ID, a.err)
			}
		}
	}
}

func (s *Store) announce(ctx context.Context, p metadata.Presence) (Head, error) {
	lease, err := s.presence.current(ctx, 0) // it is the same key again
	if err != nil {
		return Head{}, err
	}
	resp, err := s.etcd.Put(ctx, s.layout.Unlocker(p.ID), protocol.Marshal(p), clientv3.WithLease(lease))
	if err != nil {
		if locktxn.LeaseGone(err) {
			s.presence.gone(lease)
		}
		return Head{}, err
	}
	return Head{Revision: resp.Header.Revision, RaftTerm: resp.Header.RaftTerm}, nil
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
