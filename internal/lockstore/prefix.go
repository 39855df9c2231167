package lockstore

import (
	"context"
	"fmt"

	"github.com/clustermutex/unlocker/pkg/metadata"
)

// Area calls each for every key with this prefix, in the order of keys, all as they were at this revision; 0 is the
// newest one. It is for the areas that [Store.List] leaves out.
func (s *Store) Area(ctx context.Context, prefix string, revision int64, each func(metadata.KV)) error {
	if _, err := s.read(ctx, keyRange{prefix, metadata.End(prefix)}, revision, each); err != nil {
		return fmt.Errorf("list %s: %w", prefix, err)
	}
	return nil
}
