package mutex

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/etcdretry"
)

// watched is a key to follow, or a range of keys.
type watched struct {
	key  string
	opts []clientv3.OpOption
}

// deleted follows the deletions of a key, with its last value where etcd still knows that.
func deleted(key string) watched {
	return watched{key, []clientv3.OpOption{clientv3.WithFilterPut(), clientv3.WithPrevKV()}}
}

// follow watches up to three keys and calls look whenever there may be something new, until look has seen enough or ctx
// ends, see [etcdretry.Client.Follow].
func (c *Client) follow(ctx context.Context, recheck time.Duration, look func([]*clientv3.Event) (enough bool),
	keys ...watched) {
	follow := make([]etcdretry.Watched, len(keys))
	for i, w := range keys {
		follow[i] = etcdretry.Watched{Key: w.key, Options: w.opts}
	}
	c.retry.Follow(ctx, recheck, look, follow...)
}
