package etcdretry

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

	// watchStreams is the number of streams that are tried in turn: etcd's client never closes one that it could not
	// open.
	watchStreams = 4
)

// WatchTarget is a key to watch, or a range of keys as given by the options.
type WatchTarget struct {
	Key     string
	Options []clientv3.OpOption
}

// DeletionsOf returns the target whose events are the deletions of a key, with its last value if etcd still has it.
func DeletionsOf(key string) WatchTarget {
	return WatchTarget{Key: key, Options: []clientv3.OpOption{clientv3.WithFilterPut(), clientv3.WithPrevKV()}}
}

// Follow watches one key, or up to four, and calls check whenever there may be something new: once the watches are
// open, with the events that come, and every recheck without any, in case a watch went silent or etcd lost an event. It
// returns when check reports that it has seen enough, or when ctx ends.
//
// The order makes it both sound and quick. The watch is opened live, without a revision, and check reads only after
// etcd has confirmed it, so nothing between the two is missed. Reading first and watching from that revision on would
// miss nothing either, but etcd serves such a watch from a loop that runs every 100 ms.
func (c *Client) Follow(ctx context.Context, recheck time.Duration, check func([]*clientv3.Event) (enough bool),
	keys ...WatchTarget) {
	for n := 0; ctx.Err() == nil; n++ {
		began := time.Now()
		opened, enough := c.followOnce(ctx, recheck, check, keys)
		if enough || !opened && ctx.Err() == nil && check(nil) {
			return
		}
		if time.Since(began) > recheck {
			n = 0
		}
		Sleep(ctx, Backoff(n))
	}
}

// followOnce is one round of [Client.Follow]: it ends when a watch breaks, or when check has seen enough. opened
// reports whether all watches were open.
func (c *Client) followOnce(ctx context.Context, recheck time.Duration, check func([]*clientv3.Event) bool,
	keys []WatchTarget) (opened, enough bool) {
	watch, stop := c.watchContext(ctx)
	defer stop()
	events, ok := c.openWatches(ctx, watch, stop, keys)
	if !ok {
		return false, false
	}
	tick := time.NewTimer(Jitter(recheck))
	defer tick.Stop()
	for pending := len(keys); ; {
		w, came, ok := next(ctx, tick, events)
		switch {
		case !ok:
			return opened, false
		case !came:
			if check(nil) {
				return true, true
			}
			tick.Reset(Jitter(recheck))
			continue
		}
		if w.Created {
			pending--
		}
		opened = pending <= 0
		if (w.Created && opened || len(w.Events) > 0) && check(w.Events) {
			return true, true
		}
	}
}

// openWatches opens a watch for each key. ok is false if that took too long: the next ones are then opened on another
// stream.
func (c *Client) openWatches(ctx, watch context.Context, stop func(),
	keys []WatchTarget) (events [4]clientv3.WatchChan, ok bool) {
	late := time.AfterFunc(openTimeout, stop)
	for i, w := range keys {
		events[i] = c.etcd.Watch(watch, w.Key, append(w.Options, clientv3.WithCreatedNotify())...)
	}
	if !late.Stop() && ctx.Err() == nil {
		c.streams.Add(1)
		return events, false
	}
	return events, true
}

// next waits for a response of a watch, or for the tick: then came is false. ok is false when ctx ends or a watch
// breaks.
func next(ctx context.Context, tick *time.Timer,
	events [4]clientv3.WatchChan) (w clientv3.WatchResponse, came, ok bool) {
	select {
	case <-ctx.Done():
		return w, false, false
	case <-tick.C:
		return w, false, true
	case w, ok = <-events[0]:
	case w, ok = <-events[1]:
	case w, ok = <-events[2]:
	case w, ok = <-events[3]:
	}
	return w, true, ok && w.Err() == nil
}

// watchContext returns a context for watches, which ends with ctx. All watches of a client share one stream to one
// member. When it hangs, c.streams is incremented and later watches get another stream, most likely to another member.
// RequireLeader ends the watches of a member that is cut off from its cluster, which would otherwise stay silent
// forever.
func (c *Client) watchContext(ctx context.Context) (context.Context, context.CancelFunc) {
	base := clientv3.WithRequireLeader(context.Background())
	if n := c.streams.Load() % watchStreams; n > 0 {
		base = metadata.AppendToOutgoingContext(base, "mutex-stream", strconv.FormatInt(n, 10))
	}
	watch, cancel := context.WithCancel(base)
	detach := context.AfterFunc(ctx, cancel)
	return watch, func() { detach(); cancel() }
}
