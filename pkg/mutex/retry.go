package mutex

import (
	"context"

	"github.com/clustermutex/unlocker/internal/etcdretry"
	"github.com/clustermutex/unlocker/internal/locktxn"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// MaxRetryDelay is the longest pause between two attempts to reach etcd. An unlocker must warn for longer than this
// before it removes a lock, so that after an outage of etcd a live holder gets to extend first.
const MaxRetryDelay = etcdretry.MaxDelay

// ended is why ctx ended.
func ended(ctx context.Context) error { return etcdretry.Ended(ctx, ErrClosed) }

// record is the record that the operation with this number read.
func (c *Client) record(lock string, a etcdretry.Answer, op int) metadata.Document {
	return metadata.Decode(lock, locktxn.Fields(c.layout, a.Keys(op)))
}
