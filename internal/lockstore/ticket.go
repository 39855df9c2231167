package lockstore

import (
	"context"
	"fmt"

	"github.com/clustermutex/unlocker/internal/locktxn"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// RemoveTicket removes the ticket of a waiter that should have given up by now. It returns [metadata.ErrChanged] if the
// ticket is gone or another one has its key. After any other error it may or may not be there: read it again.
func (s *Store) RemoveTicket(ctx context.Context, w metadata.Waiter) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	resp, err := locktxn.RemoveTicket(s.layout, w).Commit(ctx, s.etcd)
	switch {
	case err != nil:
		return fmt.Errorf("remove ticket %s of lock %q: %w", w.ID, w.Lock, err)
	case !resp.Succeeded:
		return metadata.ErrChanged
	}
	return nil
}
