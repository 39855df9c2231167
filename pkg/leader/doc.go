// Package leader elects one of many processes as the leader, and lets the others see which one it is. A leader is the
// holder of a lock of package mutex: the dashboard, mutexctl and alerts show it like any other holder.
//
//	err := leader.Lead(ctx, locks, "scheduler", leader.Options{Address: "10.0.0.7:8080"}, schedule)
//
// [Lead] waits until this process leads and runs schedule. When the leadership is lost, the context of schedule ends,
// and Lead becomes a candidate again. To resign, return. [Campaign] does the same by hand: it returns the lock, whose
// Unlock resigns. [Current] reads who leads now, and [Observe] follows it.
//
// While it leads, the process gives a sign of life every third of [Options].TTL, as long as [Options].Check succeeds. A
// leader that dies is replaced after at most TTL plus the time that the unlocker takes to remove its lock; earlier if a
// witness saw it die and the unlocker removes abandoned locks; and never if no unlocker removes any. A leader that
// resigns is replaced within milliseconds.
//
// As with any lock, there may be two leaders for a moment: once the context of a silent leader has ended, another may
// lead while writes of the first are still in flight. Send the token of the lock with every write, or have etcd check
// its Guard: mutex.FromContext finds the lock in the context of the work.
package leader
