package mutex

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/etcdretry"
	"github.com/clustermutex/unlocker/internal/locktxn"
)

// readLineEvery is how often a client reads the whole queue of one lock, at most.
const readLineEvery = 100 * time.Millisecond

// lines are the queues before locks, as the waiters of a client with [OnWait] or [Urgent] learn their position from
// them. They share what one of them reads: many that come at once would otherwise read the queue once each, which grows
// with the square of their number.
type lines struct {
	c *Client

	mu  sync.Mutex
	all map[string]*queueLine // by lock
}

// queueLine is the queue before one lock. mu of lines guards it.
type queueLine struct {
	users    int             // waiters of this client
	reading  <-chan struct{} // closed when a read is over; nil if there is none
	last     time.Time       // of the last read
	revision int64           // that it was read at; 0 before the first read
	tickets  []queueTicket   // the oldest first
}

type queueTicket struct {
	uuid     string
	revision int64 // create revision
}

// use keeps the queue before a lock for other waiters until done is called.
func (l *lines) use(lock string) (q *queueLine, done func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	q = l.all[lock]
	if q == nil {
		q = &queueLine{}
		if l.all == nil {
			l.all = map[string]*queueLine{}
		}
		l.all[lock] = q
	}
	q.users++
	return q, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if q.users--; q.users == 0 {
			delete(l.all, lock)
		}
	}
}

// ahead returns the tickets older than a position, the oldest first. Some may be gone.
func (l *lines) ahead(ctx context.Context, q *queueLine, p locktxn.Position) ([]string, error) {
	for {
		l.mu.Lock()
		if q.revision >= p.Revision {
			defer l.mu.Unlock()
			return q.older(p), nil
		}
		reading := q.reading
		if reading == nil {
			ended := make(chan struct{})
			q.reading = ended
			rest := time.Until(q.last.Add(readLineEvery))
			l.mu.Unlock()
			err := l.read(ctx, q, p.Lock, rest)
			l.mu.Lock()
			q.reading = nil
			l.mu.Unlock()
			close(ended)
			if err != nil {
				return nil, err
			}
			continue
		}
		l.mu.Unlock()
		select {
		case <-reading:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// read reads a queue after a rest.
func (l *lines) read(ctx context.Context, q *queueLine, lock string, rest time.Duration) error {
	if !etcdretry.Pause(ctx, rest) {
		return ctx.Err()
	}
	r, err := l.c.retry.Send(ctx, locktxn.Queue(l.c.layout, lock))
	if err != nil {
		return err
	}
	kvs := r.Keys(0).Kvs
	tickets := make([]queueTicket, len(kvs))
	for i, kv := range kvs {
		tickets[i] = queueTicket{l.c.layout.Parse(string(kv.Key)).ID, kv.CreateRevision}
	}
	slices.SortFunc(tickets, func(a, b queueTicket) int { return cmp.Compare(a.revision, b.revision) })
	l.mu.Lock()
	defer l.mu.Unlock()
	q.tickets = tickets
	q.revision = r.Header.Revision
	q.last = time.Now()
	return nil
}

func (q *queueLine) older(p locktxn.Position) []string {
	n, _ := slices.BinarySearchFunc(q.tickets, p.Revision, func(t queueTicket, revision int64) int {
		return cmp.Compare(t.revision, revision)
	})
	uuids := make([]string, n)
	for i, t := range q.tickets[:n] {
		uuids[i] = t.uuid
	}
	return uuids
}

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

// The tail of a queue keeps newcomers behind the waiters. So a waiter that leaves as the tail puts it back to the
// ticket before it. If the newest waiter dies instead, another puts it back when it finds out.

// maxLeaves is how often a waiter tries to put the tail back while those before it leave, too.
const maxLeaves = 5

// leave gives up what an attempt has in the queue, if anything, and answers with what the operations read meanwhile.
func (c *Client) leave(ctx context.Context, lock, uuid string, read ...clientv3.Op) (r etcdretry.Answer, err error) {
	for range maxLeaves {
		if r, err = c.retry.Send(ctx, locktxn.Leave(c.layout, lock, uuid, read...)); err != nil || !r.Succeeded {
			return r, err
		}
		before := locktxn.Newest(c.layout, r.Keys(len(read)).Kvs, uuid)
		left, err := c.retry.Send(ctx, locktxn.LeaveAsTail(c.layout, lock, uuid, before))
		switch {
		case err == nil && left.Succeeded:
			return r, nil
		case locktxn.NoSpace(err):
			_, err = c.retry.Send(ctx, locktxn.LeaveBare(c.layout, lock, uuid))
			return r, err
		case err != nil && !locktxn.LeaseGone(err):
			return r, err
		}
	}
	_, err = c.retry.Send(ctx, locktxn.LeaveBare(c.layout, lock, uuid))
	return r, err
}

// standing is how far ahead in the queue a position was, by the tickets that the operation with this number read. That
// of the holder does not wait. If only some were read, it is an estimate: keys of tickets are in no order.
func (c *Client) standing(r etcdretry.Answer, op int, p locktxn.Position, holder string) int {
	tickets := r.Keys(op)
	unread := int(tickets.Count) - len(tickets.Kvs)
	ahead := 0
	behind := 0
	ownUnread := unread > 0
	for _, kv := range tickets.Kvs {
		switch {
		case kv.CreateRevision == p.Revision:
			ownUnread = false
		case kv.CreateRevision > p.Revision:
			behind++
		case c.layout.Parse(string(kv.Key)).ID != holder:
			ahead++
		}
	}
	if ownUnread {
		unread--
	}
	if ahead > 0 {
		ahead += unread * ahead / (ahead + behind)
	}
	return ahead + 1
}
