// Package staleness judges lock records: what state a lock is in, and whether an unlocker may remove it.
//
// [Judge] gives the state. Metric, alert, page, command line and sweep all ask it, so they can not disagree. [Decide]
// gives the removal: yes, or the rule that holds it back and the earliest moment at which time alone could allow it.
//
// The promise behind the rules: a lock is never removed early, people are always warned first, and a lock whose holder
// is dead never stays. Early is worse than late. Every rule was checked in a model; without any one of them a healthy
// holder can lose its lock (docs/protocol.md).
//
// The bound to rely on: the lock of a dead holder is gone by auto_unlock_at + 2 skews, if it alerted MinWarning before
// that, the unlocker's wall clock is verified, and there was no gap. After a gap, and for a lock that alerts late, it
// takes MinWarning from there; with an unverified clock after a restart, the lock's time to live.
//
// The package is pure: no clock, no I/O, no etcd. Time is a parameter, and it is two clocks: the wall clock, because
// the deadlines in a record were written by another machine, and this process's monotonic clock, because a wall clock
// may jump.
package staleness
