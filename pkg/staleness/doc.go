// Package staleness judges lock records: what state a lock is in, and whether an unlocker may remove it.
//
// [Judge] returns the state. Metric, alert, page, command line and sweep all use it, so they cannot disagree. [Decide]
// decides about the removal: yes, or the rule that holds it back and the earliest moment at which the passing of time
// could allow it.
//
// The promise behind the rules: a lock is never removed early, there is always an alert first, and the lock of a dead
// holder never stays. Early is worse than late. Every rule was checked in a model: without any one of them a healthy
// holder can lose its lock (docs/protocol.md).
//
// The bound to rely on: the lock of a dead holder is gone by auto_unlock_at + 2 skews, if it alerted MinWarning before
// that, the unlocker's wall clock is verified, and there was no gap. After a gap, and for a lock that alerts late, it
// takes MinWarning from there; with an unverified clock after a restart, the lock's time to live.
//
// The package is pure: no clock, no I/O, no etcd. Time is a parameter and has two clocks: the wall clock, because
// another machine wrote the deadlines of a record, and this process's monotonic clock, because a wall clock may jump.
package staleness
