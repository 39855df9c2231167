package mutex

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/locktxn"
	"github.com/clustermutex/unlocker/internal/locktxn/etcdretry"
	"github.com/clustermutex/unlocker/internal/protocol"
)

// waiters is what the waiters of one client share: the queues, which one of them reads for all, and the requests by
// which they leave together. Whatever many concurrent waiters would make slow is here, behind one mutex.
type waiters struct {
	retry  *etcdretry.Client
	layout protocol.Layout

	mu      sync.Mutex
	queues  map[string]*queueView // by lock
	leaving map[exitKey][]*exit   // who gathers; there is an entry while a waiter sends
}

// readQueueEvery is the least time between two reads of the whole queue of a lock by one client.
const readQueueEvery = 100 * time.Millisecond

// queueView is the queue of one lock, from which the waiters of a client with [OnWait] or [Urgent] learn their
// position. If each read the queue for itself, the cost of many that come at once would grow with the square of their
// number. mu of waiters guards it.
type queueView struct {
	users    int             // waiters of this client
	reading  <-chan struct{} // closed when a read is over; nil if there is none
	last     time.Time       // of the last read
	revision int64           // of the last read; 0 before the first
	tickets  []queueTicket   // the oldest first
}

type queueTicket struct {
	uuid     string
	revision int64 // create revision
}

// view returns the queue of a lock, shared with other waiters until done is called.
func (w *waiters) view(lock string) (q *queueView, done func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	q = w.queues[lock]
	if q == nil {
		q = &queueView{}
		if w.queues == nil {
			w.queues = map[string]*queueView{}
		}
		w.queues[lock] = q
	}
	q.users++
	return q, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if q.users--; q.users == 0 {
			delete(w.queues, lock)
		}
	}
}

// ahead returns the uuids of the tickets older than a position, the oldest first. Some may be gone.
func (w *waiters) ahead(ctx context.Context, q *queueView, p locktxn.Position) ([]string, error) {
	for {
		w.mu.Lock()
		if q.revision >= p.Revision {
			defer w.mu.Unlock()
			return q.older(p), nil
		}
		reading := q.reading
		if reading == nil {
			ended := make(chan struct{})
			q.reading = ended
			rest := time.Until(q.last.Add(readQueueEvery))
			w.mu.Unlock()
			err := w.read(ctx, q, p.Lock, rest)
			w.mu.Lock()
			q.reading = nil
			w.mu.Unlock()
			close(ended)
			if err != nil {
				return nil, err
			}
			continue
		}
		w.mu.Unlock()
		select {
		case <-reading:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// read reads a queue after a pause.
func (w *waiters) read(ctx context.Context, q *queueView, lock string, rest time.Duration) error {
	if !etcdretry.Pause(ctx, rest) {
		return ctx.Err()
	}
	r, err := w.retry.Send(ctx, locktxn.Queue(w.layout, lock))
	if err != nil {
		return err
	}
	kvs := r.Keys(0).Kvs
	tickets := make([]queueTicket, len(kvs))
	for i, kv := range kvs {
		tickets[i] = queueTicket{w.layout.Parse(string(kv.Key)).ID, kv.CreateRevision}
	}
	slices.SortFunc(tickets, func(a, b queueTicket) int { return cmp.Compare(a.revision, b.revision) })
	w.mu.Lock()
	defer w.mu.Unlock()
	q.tickets = tickets
	q.revision = r.Header.Revision
	q.last = time.Now()
	return nil
}

func (q *queueView) older(p locktxn.Position) []string {
	n, _ := slices.BinarySearchFunc(q.tickets, p.Revision, func(t queueTicket, revision int64) int {
		return cmp.Compare(t.revision, revision)
	})
	uuids := make([]string, n)
	for i, t := range q.tickets[:n] {
		uuids[i] = t.uuid
	}
	return uuids
}

// maxExits is how many waiters leave a queue in one request. By default etcd takes 128 operations in one transaction.
const maxExits = 64

// exitKey identifies the waiters that can leave together. While a request takes some out of the queue, others that give
// up gather for the next one. A thousand that give up at once, because the client closes or their time is up, would
// otherwise send a thousand transactions, most of which would not be answered in time.
type exitKey struct {
	lock   string
	shares bool // the waiters read the shares, too
}

// exit is one waiter that gives up.
type exit struct {
	uuid string

	// ready is closed when the waiter is out of the queue, is its tail, or must send the next request.
	ready chan struct{}
	sends bool
	tail  bool
	r     etcdretry.Answer
	err   error
}

// leave takes an attempt out of its queue, and answers with the holders and the tickets, see
// [locktxn.Standing].
func (w *waiters) leave(ctx context.Context, claim locktxn.Claim, uuid string) (etcdretry.Answer, error) {
	key := exitKey{claim.Lock, claim.Shares}
	e := &exit{uuid: uuid, ready: make(chan struct{})}
	if !w.gather(key, e) {
		select {
		case <-e.ready:
		case <-ctx.Done():
			if w.withdraw(key, e) {
				return etcdretry.Answer{}, ctx.Err()
			}
			<-e.ready
		}
	}
	standing := locktxn.Standing(w.layout, claim).Then
	if e.sends {
		defer w.pass(key)
		if ctx.Err() != nil {
			return etcdretry.Answer{}, ctx.Err()
		}
		if others := w.others(key); len(others) > 0 {
			w.sendExits(ctx, claim.Lock, standing, append(others, e))
		} else {
			e.tail = true // possibly
		}
	}
	if e.tail {
		return w.leaveAlone(ctx, claim.Lock, e.uuid, standing...)
	}
	return e.r, e.err
}

// gather lets a waiter send if no other is sending; otherwise it joins those that gather.
func (w *waiters) gather(key exitKey, e *exit) (sends bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	others, busy := w.leaving[key]
	if busy {
		w.leaving[key] = append(others, e)
		return false
	}
	if w.leaving == nil {
		w.leaving = map[exitKey][]*exit{}
	}
	w.leaving[key] = nil
	e.sends = true
	return true
}

// withdraw takes a waiter out of those that gather. It reports false if a sender has already taken it along.
func (w *waiters) withdraw(key exitKey, e *exit) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	i := slices.Index(w.leaving[key], e)
	if i < 0 {
		return false
	}
	w.leaving[key] = slices.Delete(w.leaving[key], i, i+1)
	return true
}

// others takes the waiters that leave together with the sender.
func (w *waiters) others(key exitKey) []*exit {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := min(len(w.leaving[key]), maxExits-1)
	others := slices.Clone(w.leaving[key][:n])
	w.leaving[key] = w.leaving[key][n:]
	return others
}

// pass makes the next waiter send, if any have gathered meanwhile.
func (w *waiters) pass(key exitKey) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.leaving[key]) == 0 {
		delete(w.leaving, key)
		return
	}
	next := w.leaving[key][0]
	w.leaving[key] = w.leaving[key][1:]
	next.sends = true
	close(next.ready)
}

// sendExits takes several waiters out of a queue, the sender last.
func (w *waiters) sendExits(ctx context.Context, lock string, standing []clientv3.Op, all []*exit) {
	uuids := make([]string, len(all))
	for i, e := range all {
		uuids[i] = e.uuid
	}
	r, err := w.retry.Send(ctx, locktxn.LeaveTogether(w.layout, lock, uuids, standing...))
	for i, e := range all {
		e.r = r
		e.err = err
		e.tail = err == nil && locktxn.StillTail(r.TxnResponse, len(standing)+i)
		if !e.sends {
			close(e.ready)
		}
	}
}

// maxLeaves is how often a waiter tries to move the tail back while those before it leave, too.
const maxLeaves = 5

// leaveAlone gives up what an attempt has in the queue, if anything, and returns what the operations read.
//
// The tail of a queue keeps newcomers behind the waiters, so a waiter that leaves as the tail moves it back to the
// ticket before its own. If the newest waiter dies instead, another waiter restores the tail when it notices.
func (w *waiters) leaveAlone(ctx context.Context, lock, uuid string, read ...clientv3.Op) (r etcdretry.Answer,
	err error) {
	for range maxLeaves {
		if r, err = w.retry.Send(ctx, locktxn.Leave(w.layout, lock, uuid, read...)); err != nil || !r.Succeeded {
			return r, err
		}
		before := locktxn.Newest(w.layout, r.Keys(len(read)).Kvs, uuid)
		left, err := w.retry.Send(ctx, locktxn.LeaveAsTail(w.layout, lock, uuid, before))
		switch {
		case err == nil && left.Succeeded:
			return r, nil
		case locktxn.NoSpace(err):
			_, err = w.retry.Send(ctx, locktxn.LeaveBare(w.layout, lock, uuid))
			return r, err
		case err != nil && !locktxn.LeaseGone(err):
			return r, err
		}
	}
	_, err = w.retry.Send(ctx, locktxn.LeaveBare(w.layout, lock, uuid))
	return r, err
}

// standing returns the place of a position in the queue, 1 for the first, from the tickets that operation op read. The
// holder's ticket does not count. If only some were read, it is an estimate, because ticket keys are in no order.
func (w *waiters) standing(r etcdretry.Answer, op int, p locktxn.Position, holder string) int {
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
		case w.layout.Parse(string(kv.Key)).ID != holder:
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
