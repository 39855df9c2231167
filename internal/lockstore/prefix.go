package lockstore

import (
	"context"
	"fmt"

	"github.com/clustermutex/unlocker/internal/protocol"
)

// ListPrefix calls each for every key with this prefix, in key order, as of this revision (0: the newest). It is for
// the areas that [Store.List] leaves out.
func (s *Store) ListPrefix(ctx context.Context, prefix string, revision int64, each func(protocol.KV)) error {
	if _, err := s.read(ctx, keyRange{prefix, protocol.End(prefix)}, revision, each); err != nil {
		return fmt.Errorf("list %s: %w", prefix, err)
	}
	return nil
}
