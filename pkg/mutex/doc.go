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
// ([Lock.Alive]) and gives the lock back ([Lock.Unlock]). [Client.Do] runs a function under the lock. Packages jobs and
// leader are built on locks, and package inspect reads them. How to choose durations, and what to do about each error,
// is in docs/client.md; docs/protocol.md defines what is in etcd.
//
// A lock is one record in etcd, and has no lease. If its holder dies, it stays held until its auto-unlock time; then
// the unlocker, a separate service, warns and removes it.
//
// # What it promises
//
//   - There is one record per name. An acquisition takes effect once, however many answers are lost and requests
//     repeated. One that is given up while its outcome is unknown is undone in the background and cannot succeed later.
//   - [Lock.Token] grows with every acquisition of any lock in the same etcd.
//   - Before its auto-unlock time, only a person removes a lock, or the unlocker on proof that the holder is dead. The
//     unlocker never removes a lock because etcd was away and the holder could not extend.
//   - When the lock is taken away, [Lock.Context] ends within a round trip, but not before the hold is a tenth of a
//     second old, with a [*LostError] that says by whom and why. If etcd cannot be reached, it ends before the
//     auto-unlock, by this machine's monotonic clock.
//   - Waiters get the lock in order of arrival, within milliseconds of a release, without polling.
//
// # What it cannot promise
//
// That two processes never work at the same time. A process may stall between checking its context and writing, and
// resume when another process holds the lock. Only the resource that is written to can refuse such a write: in the same
// etcd by [Lock.Guard] in the transaction, elsewhere by [Lock.Token]; see package fencing. Without such a fence, a lock
// saves duplicate work. It does not guarantee that nothing is done twice.
//
// # Waiting
//
// Each waiter has a visible ticket in etcd and follows the one before it: a release wakes one waiter, and a lock that
// was waited for costs four requests, however long the queue is. A waiter that dies delays those behind it by at most
// ten seconds, the time to live of its lease. One that is cut off for longer joins the queue again at the end. If the
// newest waiter dies, newcomers may overtake the queue for up to ten seconds. Otherwise no waiter is overtaken, except
// by clients that do not queue: those that do not support the queue, and those that use [WithoutQueue]. A stream of
// readers cannot starve a waiting writer, nor light weights a heavy one.
//
// # Errors
//
// Names and options are checked before the first request. After that, a call returns a [*HeldError], [*LostError] or
// [*ConditionError], [metadata.ErrOutcomeUnknown] or [ErrClosed]. With any other error, etcd refused or did not answer
// in time.
package mutex
