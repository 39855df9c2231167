// Package mutex takes, keeps and releases distributed locks in etcd that show who holds them, where, since when and
// what for.
//
//	locks, err := mutex.New(etcd, mutex.Options{Owner: "billing", Logger: slog.Default()})
//	...
//	err = locks.Do(ctx, "invoices/2026-08", sendInvoices,
//		mutex.Purpose("send the invoices of August"),
//		mutex.AlertAfter(10*time.Minute), // then an alert is raised
//		mutex.AutoUnlockAfter(time.Hour)) // then the lock is removed
//
// [Client.Lock] waits for the lock, and [Client.TryLock] does not. The [Lock] that they return reports progress
// ([Lock.Alive]) and gives the lock back ([Lock.Unlock]). [Client.Do] runs a function under the lock. A lock is one
// record in etcd, and has no lease. If its holder dies, it stays held until its auto-unlock time; then the unlocker, a
// separate service, warns and removes it.
//
// # What it promises
//
//   - There is one record per name. An acquisition takes effect once, however many answers are lost and requests
//     repeated: the record's UUID tells a repetition from a rival. An acquisition that is abandoned while its outcome
//     is unknown is undone in the background and cannot succeed later.
//   - [Lock.Token] grows with every acquisition of any lock in the same etcd.
//   - Before its auto-unlock time, only a person removes a lock, or the unlocker on proof that the holder is dead. The
//     unlocker never removes a lock because etcd was away and the holder could not extend.
//   - [Lock.Context] ends within a round trip when the lock is taken away, with a [*LostError] that says by whom and
//     why. If etcd cannot be reached, it ends before the auto-unlock, by this machine's monotonic clock.
//   - Waiting does not poll. A waiter learns of a release from a watch, within milliseconds.
//   - Waiters get the lock in order of arrival; see Waiting.
//
// # What it cannot promise
//
// That two processes never work at the same time. A process may stall between checking its context and writing, for a
// garbage collection, a page fault or a suspended machine. When it resumes, another process may hold the lock, and no
// lock service can stop its write from leaving the machine. Only the resource that is written to can refuse it. Have it
// check the fence:
//
//   - In the same etcd, add [Lock.Guard] to the compares of your transaction: it commits only while the lock is held.
//   - Elsewhere, send [Lock.Token] with every write, and have the resource keep the greatest token it has seen and
//     refuse smaller ones: UPDATE … SET …, token = $1 WHERE id = $2 AND token <= $1. Package fencing does this for SQL
//     and HTTP.
//
// Without a fence, a lock saves duplicate work. It does not guarantee that nothing is done twice.
//
// # Waiting
//
// [Client.Lock] queues. Each waiter has a visible ticket in etcd and follows the one before it: a release wakes one
// waiter, and a lock that was waited for costs four requests, however long the queue is. Meanwhile [OnWait] reports the
// holder and the position in the queue, at the cost of at most one small request a second. If the wait ends without the
// lock, the [*HeldError] has both.
//
// A waiter that dies delays those behind it by at most ten seconds, the time to live of its lease. One that is cut off
// for longer loses its position, notices, and joins the queue again at the end. If the newest waiter dies, newcomers
// may overtake the queue until another waiter notices, within ten seconds. Otherwise no waiter is overtaken, except by
// clients that do not queue: those that do not support the queue, and those that use [WithoutQueue]. A stream of
// readers cannot starve a waiting writer, nor light weights a heavy one.
//
// # More than a lock
//
//   - [Client.LockAll] and [Client.TryLockAll] take several locks, all or none.
//   - [If] and [Then] compare and write your own keys in the transaction that takes the lock, [Lock.UnlockWith] in the
//     one that releases it.
//   - [Lock.FinishRequested] tells a holder that an operator, or a waiter with [AskToFinish], wants it to finish early;
//     [Lock.MoreTime] says who gave it more time.
//   - [Client.Locker] is for code that takes a [sync.Locker].
//   - Package leader elects a leader, and package inspect reads locks without taking them.
//   - Package jobs is built on locks: work that runs once per period, step by step, or task by task.
//
// # Which durations to choose
//
// [AlertAfter] is how long the work takes on a bad day; after that, an alert is raised. [AutoUnlockAfter] is how long
// others can wait for a dead holder; allow time for a person to look at the alert first. The defaults are 5 and 15
// minutes; if only one is given, AutoUnlockAfter is three times AlertAfter. Both restart at every [Lock.Alive]. Call it
// where the work has made a step, not from a timer, and say which step: a holder that hangs is found by its silence.
//
// # Errors
//
// Names and options are checked before the first request. After that, a call returns a [*HeldError], [*LostError] or
// [*ConditionError], [metadata.ErrOutcomeUnknown] or [ErrClosed]. With any other error, etcd refused or did not answer
// in time: after Lock and TryLock the lock is not held; after Alive the hold stands as before; after Unlock the release
// is retried in the background until the client is closed.
//
// Make the etcd client as [New] says, with all members as endpoints, reached directly and not through a proxy. Its user
// needs to read and write the prefix. All waits and watches of a [Client] share one connection.
package mutex
