package mutex

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

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
