package locks

import (
	"time"

	"github.com/clustermutex/unlocker/pkg/staleness"
)

// Counts sums up locks. Expiring ones are also counted by their state.
type Counts struct {
	Total, Held, Alerting, Expiring, Abandoned, Expired, Malformed int

	Waiting    int                // waiters
	Longest    time.Time          // since when the longest waiter waits
	Oldest     time.Time          // first locked_at
	NextUnlock *Row               // of those that alert, expire or are abandoned, the first to be auto-unlocked
	queues     map[sharedLock]int // waiters by the lock that several hold, so that they count once
}

// sharedLock is a lock that several hold.
type sharedLock struct{ cluster, name string }

func (c *Counts) add(r *Row) {
	c.Total++
	switch r.state() {
	case staleness.Held:
		c.Held++
	case staleness.Alerting:
		c.Alerting++
	case staleness.Abandoned:
		c.Abandoned++
	case staleness.Expired:
		c.Expired++
	case staleness.Malformed:
		c.Malformed++
	}
	if r.Display == Expiring {
		c.Expiring++
	}
	if r.Share == nil || r.Share.Lock == "" {
		c.Waiting += r.Waiters
	} else if r.Waiters > 0 {
		c.addQueue(sharedLock{r.Cluster, r.Share.Lock}, r.Waiters)
	}
	c.Longest = Earlier(c.Longest, r.Longest)
	c.Oldest = Earlier(c.Oldest, r.LockedAt)
	if (r.Display == Alerting || r.Display == Expiring || r.Display == Abandoned) && !r.UnlockAt().IsZero() {
		c.soonest(r)
	}
}

// sum adds the counts of other locks.
func (c *Counts) sum(o *Counts) {
	c.Total += o.Total
	c.Held += o.Held
	c.Alerting += o.Alerting
	c.Expiring += o.Expiring
	c.Abandoned += o.Abandoned
	c.Expired += o.Expired
	c.Malformed += o.Malformed
	c.Waiting += o.Waiting
	for lock, waiters := range o.queues {
		c.Waiting -= waiters // which are in o.Waiting
		c.addQueue(lock, waiters)
	}
	c.Longest = Earlier(c.Longest, o.Longest)
	c.Oldest = Earlier(c.Oldest, o.Oldest)
	c.soonest(o.NextUnlock)
}

// addQueue counts the queue of a lock that several hold.
func (c *Counts) addQueue(lock sharedLock, waiters int) {
	if _, counted := c.queues[lock]; counted {
		return
	}
	if c.queues == nil {
		c.queues = map[sharedLock]int{}
	}
	c.queues[lock] = waiters
	c.Waiting += waiters
}

// soonest notes the row if it is the next to be auto-unlocked.
func (c *Counts) soonest(r *Row) {
	if r != nil && (c.NextUnlock == nil || r.UnlockAt().Before(c.NextUnlock.UnlockAt())) {
		c.NextUnlock = r
	}
}

// Earlier is the earlier of two instants, of which zero ones do not count.
func Earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
