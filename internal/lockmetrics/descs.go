package lockmetrics

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"
)

// descs holds the names and help texts of everything that is computed at a scrape.
type descs struct {
	locks, waiters, oldest, longestWaiter, delays, inconsistent, disagreements *prometheus.Desc

	deadlocks, deadlockSince, unclaimed, unclaimedSince *prometheus.Desc

	lockState, lockedAt, alertAt, autoUnlockAt, removedBy, aliveAt, lockExcluded, lockInfo, lockWaiters,
	lockRank, dropped *prometheus.Desc

	clockOffset, disputed, holderEnded, acknowledgedUntil *prometheus.Desc

	all []*prometheus.Desc
}

// newDescs returns them; more are the labels beside the holder of a lock.
func newDescs(more []string) descs {
	var all []*prometheus.Desc
	d := func(name, help string, labels ...string) *prometheus.Desc {
		all = append(all, prometheus.NewDesc(namespace+"_"+name, help, labels, nil))
		return all[len(all)-1]
	}
	holders := func(name, help string, labels ...string) *prometheus.Desc {
		return d(name, help, slices.Concat([]string{"lock", "owner", "hostname"}, labels, more)...)
	}
	made := descs{
		locks:   d("locks", "Held locks by state.", "state"),
		waiters: d("waiters", "Waiters, over all locks."),
		oldest:  d("oldest_lock_timestamp_seconds", "When the lock held longest was taken, by its holder's clock."),
		longestWaiter: d("longest_waiter_timestamp_seconds",
			"When the waiter that has waited longest began to wait, by its clock."),

		delays: d("lock_delays", "Lock delays: locks and shares that no client may take yet after a hold was ended."),

		inconsistent: d("inconsistent_locks", "Locks in a state that no client leaves: more permits out than there "+
			"are, "+
			"holders that exclude each other, a lock delay without a lease.", "kind"),
		disagreements: d("disagreements",
			"Settings that decide how stale locks are treated and differ between the running "+
				"unlockers."),

		deadlocks: d("deadlocks", "Deadlocks: cycles of processes that hold locks and wait for each other's."),
		deadlockSince: d("deadlock_since_timestamp_seconds",
			"When the deadlock was complete: the latest wait or hold in the cycle, by the processes' clocks.",
			"locks", "holders"),
		unclaimed: d("unclaimed_locks", "Free locks that no waiter takes."),
		unclaimedSince: d("lock_unclaimed_since_timestamp_seconds",
			"When this program saw the lock become free that nobody takes; owner and hostname are of the first in "+
				"line.",
			"lock", "owner", "hostname"),

		lockState:    holders("lock_state", "The state that the lock is in; always 1.", "state"),
		lockedAt:     holders("lock_locked_timestamp_seconds", "When the lock was taken, by its holder's clock."),
		alertAt:      holders("lock_alert_at_timestamp_seconds", "When the lock starts to alert."),
		autoUnlockAt: holders("lock_auto_unlock_at_timestamp_seconds", "When the lock is due for removal."),
		removedBy: d("lock_removed_by_timestamp_seconds",
			"When this program has removed the lock at the latest: its deadline plus what the rules add. Absent if it "+
				"never removes the lock.", "lock"),
		aliveAt: d("lock_alive_timestamp_seconds",
			"When the lock's holder last extended it, by its clock; absent if it never did.", "lock"),
		lockExcluded: d("lock_excluded", "The lock is never auto-unlocked, by its name (--sweep.exclude); always 1.",
			"lock"),
		lockInfo: d("lock_info", "What the lock was taken for, in its holder's words; always 1.",
			"lock", "purpose"),
		lockWaiters: d("lock_waiters", "Waiters for the lock.", "lock"),
		lockRank: d("lock_rank", "The lock's row in the list of mutexdash, from 1; only of locks that are not on time.",
			"lock"),
		dropped: d("lock_series_dropped", "Locks that have no series of their own because of the limit."),

		clockOffset: holders("lock_holder_clock_offset_seconds",
			"How far the clock of the lock's holder is ahead of this program's; negative: behind. Only if it is off."),

		disputed: d("disputed_deaths", "Held locks whose holder reported progress after a witness declared it dead."),
		holderEnded: holders("lock_holder_ended_timestamp_seconds",
			"When the holder of an abandoned lock ended, by the witness's clock.", "cause"),

		acknowledgedUntil: d("lock_acknowledged_until_timestamp_seconds",
			"When the acknowledgement of the lock ends.", "lock"),
	}
	made.all = all
	return made
}

// Series selects the locks that get series of their own.
type Series string

// The choices.
const (
	SeriesAlerting Series = "alerting" // those that are not on time
	SeriesAll      Series = "all"
	SeriesNone     Series = "none"
)

// wanted returns how many locks, the most urgent first, get series of their own.
func (s Series) wanted(all, urgent int) int {
	switch s {
	case SeriesAll:
		return all
	case SeriesAlerting:
		return urgent
	}
	return 0
}

// names reports whether any lock gets series of its own.
func (s Series) names() bool { return s == SeriesAll || s == SeriesAlerting }
