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

	Waiting    int             // waiters
	Longest    time.Time       // since when the longest waiter waits
	Oldest     time.Time       // first locked_at
	NextUnlock *Row            // of those that alert, expire or are abandoned, the first to be auto-unlocked
	counted    map[string]bool // locks that several hold, whose waiters are in Waiting
	in         [states]int     // by the urgency of the state
}

// states is how many there are, by their urgency.
const states = 6

// In returns how many are in this state. Expiring ones count as held, too.
func (c *Counts) In(s metadata.State) int { return c.in[s.Urgency()] }

// PastDeadline returns how many are past a deadline.
func (c *Counts) PastDeadline() int {
	return c.In(metadata.StateAlerting) + c.In(metadata.StateAbandoned) + c.In(metadata.StateExpired)
}

func (c *Counts) add(r *Row) {
	c.Total++
	c.Version += r.Fingerprint
	c.Longest = protocol.Earlier(c.Longest, r.Longest)
	c.addWaiters(r)
	if r.Leased != nil {
		c.Leased++
		return
	}
	c.in[r.Display.Urgency()]++
	if r.Display == metadata.StateExpiring {
		c.in[metadata.StateHeld.Urgency()]++
	}
	c.Oldest = protocol.Earlier(c.Oldest, r.LockedAt)
	if (r.Display == metadata.StateAlerting || r.Display == metadata.StateExpiring ||
		r.Display == metadata.StateAbandoned) && !r.DueUnlock().IsZero() &&
		(c.NextUnlock == nil || r.DueUnlock().Before(c.NextUnlock.DueUnlock())) {
		c.NextUnlock = r
	}
}

// addWaiters counts waiters, those for a lock that several hold only once.
func (c *Counts) addWaiters(r *Row) {
	shared := r.Share().LockName
	if r.Waiters == 0 || c.counted[shared] {
		return
	}
	c.Waiting += r.Waiters
	if shared == "" {
		return
	}
	if c.counted == nil {
		c.counted = map[string]bool{}
	}
	c.counted[shared] = true
}
