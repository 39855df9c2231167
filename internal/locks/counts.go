package locks

import (
	"time"

	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// Counts sums up locks.
type Counts struct {
	Total   int
	Leased  int    // of which other libraries made
	Version uint64 // changes with anything that a list shows of them

	Waiting    int            // waiters
	Longest    time.Time      // since when the longest waiter waits
	Oldest     time.Time      // first locked_at
	NextUnlock *Row           // of those that alert, expire or are abandoned, the first to be auto-unlocked
	queues     map[string]int // waiters by the lock that several hold, so that they count once
	in         [states]int    // by the urgency of the state
}

// states is how many there are, by their urgency.
const states = 6

// In returns how many are in this state. Expiring ones count as held, too.
func (c *Counts) In(s metadata.State) int { return c.in[s.Urgency()] }

// Late returns how many are past a deadline.
func (c *Counts) Late() int { return c.In(Alerting) + c.In(Abandoned) + c.In(Expired) }

func (c *Counts) add(r *Row) {
	c.Total++
	c.Version += r.Fingerprint
	if r.Leased != nil {
		c.Leased++
		c.Waiting += r.Waiters
		c.Longest = protocol.Earlier(c.Longest, r.Longest)
		return
	}
	c.in[r.Display.Urgency()]++
	if r.Display == Expiring {
		c.in[Held.Urgency()]++
	}
	if shared := r.Share().LockName; shared == "" {
		c.Waiting += r.Waiters
	} else if r.Waiters > 0 {
		c.addQueue(shared, r.Waiters)
	}
	c.Longest = protocol.Earlier(c.Longest, r.Longest)
	c.Oldest = protocol.Earlier(c.Oldest, r.LockedAt)
	if (r.Display == Alerting || r.Display == Expiring || r.Display == Abandoned) && !r.DueUnlock().IsZero() &&
		(c.NextUnlock == nil || r.DueUnlock().Before(c.NextUnlock.DueUnlock())) {
		c.NextUnlock = r
	}
}

// addQueue counts the queue of a lock that several hold.
func (c *Counts) addQueue(lock string, waiters int) {
	if _, counted := c.queues[lock]; counted {
		return
	}
	if c.queues == nil {
		c.queues = map[string]int{}
	}
	c.queues[lock] = waiters
	c.Waiting += waiters
}
