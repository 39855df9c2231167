package lockstore

import (
	"context"
	"time"

	"github.com/clustermutex/unlocker/internal/protocol"
)

// WatchFor is Watch that ends after a silence of this length.
func (s *Store) WatchFor(ctx context.Context, patience time.Duration, after int64,
	each func(revision int64, events []protocol.Event)) error {
	return s.watch(ctx, s.layout.Prefix(), after, patience, each)
}
