package lockstore

import (
	"context"
	"fmt"

	"github.com/clustermutex/unlocker/internal/locktxn"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// RemoveTicket takes the place of a waiter in the queue away: of one who said that it would have given up by now. It
// returns [metadata.ErrChanged] where the ticket is gone or another's. After any other error it may be there or not:
// look again.
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
