package mutex

import (
	"context"
	"slices"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/etcdretry"
	"github.com/clustermutex/unlocker/internal/locktxn"
)

// maxExits is how many waiters leave a queue by one request. etcd takes 128 operations in one transaction by default.
const maxExits = 64

// exits are the waiters of a client that give up. While a request takes some out of the queue, others that give up
// gather for the next one. A thousand that give up at once, because the client closes or their time is over, would
// otherwise send a thousand transactions, of which most would not be answered in time.
type exits struct {
	c *Client

	mu      sync.Mutex
	waiting map[exitKey][]*exit // there is an entry while somebody sends
}

// exitKey tells which waiters can leave together.
type exitKey struct {
	lock   string
	shares bool // they read the same
}

// exit is one waiter that gives up.
type exit struct {
	uuid string

	// told is closed when the waiter is out of the queue, is its tail, or is to send the next request.
	told  chan struct{}
	sends bool
	tail  bool
	r     etcdretry.Answer
	err   error
}

// leave takes an attempt out of its queue, and answers with the holders and the tickets, see
// [locktxn.Standing].
func (x *exits) leave(ctx context.Context, a *acquisition) (etcdretry.Answer, error) {
	claim := a.set.kind.claim(a.lock)
	key := exitKey{a.lock, claim.Shares}
	e := &exit{uuid: a.draft.UUID, told: make(chan struct{})}
	if !x.enter(key, e) {
		select {
		case <-e.told:
		case <-ctx.Done():
			if x.withdraw(key, e) {
				return etcdretry.Answer{}, ctx.Err()
			}
			<-e.told
		}
	}
	standing := locktxn.Standing(x.c.layout, claim).Then
	if e.sends {
		defer x.pass(key)
		if ctx.Err() != nil {
			return etcdretry.Answer{}, ctx.Err()
		}
		if others := x.others(key); len(others) > 0 {
			x.send(ctx, a.lock, standing, append(others, e))
		} else {
			e.tail = true // for all that is known
		}
	}
	if e.tail {
		return x.c.leave(ctx, a.lock, e.uuid, standing...)
	}
	return e.r, e.err
}

// enter has a waiter send, or else gather with others.
func (x *exits) enter(key exitKey, e *exit) (sends bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	others, busy := x.waiting[key]
	if busy {
		x.waiting[key] = append(others, e)
		return false
	}
	if x.waiting == nil {
		x.waiting = map[exitKey][]*exit{}
	}
	x.waiting[key] = nil
	e.sends = true
	return true
}

// withdraw takes back that a waiter gathered. It cannot when others have begun to act on it.
func (x *exits) withdraw(key exitKey, e *exit) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	i := slices.Index(x.waiting[key], e)
	if i < 0 {
		return false
	}
	x.waiting[key] = slices.Delete(x.waiting[key], i, i+1)
	return true
}

// others takes those who leave together with the sender.
func (x *exits) others(key exitKey) []*exit {
	x.mu.Lock()
	defer x.mu.Unlock()
	n := min(len(x.waiting[key]), maxExits-1)
	others := slices.Clone(x.waiting[key][:n])
	x.waiting[key] = x.waiting[key][n:]
	return others
}

// pass has the next one send, if somebody has gathered meanwhile.
func (x *exits) pass(key exitKey) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.waiting[key]) == 0 {
		delete(x.waiting, key)
		return
	}
	next := x.waiting[key][0]
	x.waiting[key] = x.waiting[key][1:]
	next.sends = true
	close(next.told)
}

// send takes several waiters out of a queue, the sender last.
func (x *exits) send(ctx context.Context, lock string, standing []clientv3.Op, all []*exit) {
	uuids := make([]string, len(all))
	for i, e := range all {
		uuids[i] = e.uuid
	}
	r, err := x.c.retry.Send(ctx, locktxn.LeaveTogether(x.c.layout, lock, uuids, standing...))
	for i, e := range all {
		e.r = r
		e.err = err
		e.tail = err == nil && locktxn.StillTail(r.TxnResponse, len(standing)+i)
		if !e.sends {
			close(e.told)
		}
	}
}
