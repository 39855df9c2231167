package mutex

import (
	"context"
	"strconv"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/metadata"
)

const (
	// openTimeout is how long the opening of a watch may take before it is tried on another stream.
	openTimeout = 3 * time.Second

	// watchStreams bounds the streams that are tried in turns: etcd's client never closes one that it could not open.
	watchStreams = 4
)

// follow watches a key and calls look whenever there may be something new: once the watch is open, with the events that come,
// and now and then without any (recheck), in case the watch went silent or etcd lost an event. It returns when look says that it
// has seen enough, or when ctx ends.
//
// The order is what makes it sound and quick at once. The watch is opened live, without a revision, and look reads only after
// etcd has confirmed it: so nothing between the two is missed. To read first and to watch from that revision on would miss
// nothing either, but etcd serves such a watch from a loop that runs every 100 ms.
func (c *Client) follow(ctx context.Context, key string, recheck time.Duration, look func([]*clientv3.Event) (enough bool), opts ...clientv3.OpOption) {
	for n := 0; ctx.Err() == nil; n++ {
		began := time.Now()
		opened, enough := c.followOnce(ctx, key, recheck, look, opts)
		if enough || !opened && ctx.Err() == nil && look(nil) {
			return
		}
		if time.Since(began) > recheck {
			n = 0
		}
		pause(ctx, delay(n))
	}
}

// followOnce follows until the watch breaks or look has seen enough.
func (c *Client) followOnce(ctx context.Context, key string, recheck time.Duration, look func([]*clientv3.Event) bool, opts []clientv3.OpOption) (opened, enough bool) {
	watch, stop := c.stream(ctx)
	defer stop()
	late := time.AfterFunc(openTimeout, stop)
	events := c.etcd.Watch(watch, key, append(opts, clientv3.WithCreatedNotify())...)
	if !late.Stop() && ctx.Err() == nil {
		c.streams.Add(1)
		return false, false
	}
	tick := time.NewTimer(jitter(recheck))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return opened, false
		case w, ok := <-events:
			if !ok || w.Err() != nil {
				return opened, false
			}
			opened = true
			if (w.Created || len(w.Events) > 0) && look(w.Events) {
				return true, true
			}
		case <-tick.C:
			if look(nil) {
				return true, true
			}
			tick.Reset(jitter(recheck))
		}
	}
}

// stream is a context for a watch that ends with ctx. All watches of a client share one stream to one member; when that one hangs,
// c.streams is counted up and later watches get another, most likely to another member. RequireLeader ends the watches of a member that is cut off from
// its cluster, which would be silent for ever.
func (c *Client) stream(ctx context.Context) (context.Context, context.CancelFunc) {
	base := clientv3.WithRequireLeader(context.Background())
	if n := c.streams.Load() % watchStreams; n > 0 {
		base = metadata.AppendToOutgoingContext(base, "mutex-stream", strconv.FormatInt(n, 10))
	}
	watch, cancel := context.WithCancel(base)
	detach := context.AfterFunc(ctx, cancel)
	return watch, func() { detach(); cancel() }
}
