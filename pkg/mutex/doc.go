// Package mutex takes, keeps and gives back distributed locks in etcd that people can see: who holds each, where, since
// when and what for.
//
//	locks, err := mutex.New(etcd, mutex.Options{Owner: "billing"})
//	...
//	err = locks.Do(ctx, "invoices/2026-08", sendInvoices,
//		mutex.Purpose("send the invoices of August"),
//		mutex.AlertAfter(10*time.Minute), // then people are alerted
//		mutex.AutoUnlockAfter(time.Hour))      // then the lock is taken away
//
// [Client.Lock] waits for the lock, [Client.TryLock] does not, and [Client.Do] runs a function under it. The [Lock]
// that they return says that the work makes progress ([Lock.Alive]) and gives the lock back ([Lock.Unlock]). A lock is
// one record in etcd; it has no lease. A holder that dies keeps it until its auto-unlock, when the unlocker, a service
// of its own, removes it after it has warned people.
//
// # What it promises
//
//   - There is one record per name. An acquisition counts once, however often an answer gets lost and a request is repeated: the
//     record's UUID tells a repetition from a rival. An acquisition that was given up while its outcome was unknown is taken back
//     in the background, and cannot succeed later.
//   - [Lock.Token] grows with every acquisition in the same etcd, of whatever lock.
//   - Nobody removes the lock before its auto-unlock but a person who decides to, and the unlocker never does so because etcd was
//     away and the holder could not extend.
//   - [Lock.Context] ends within a round trip when the lock was taken away, with a [*LostError] that names who did it and why; and
//     before the auto-unlock when etcd cannot be reached, by this machine's own clock that runs on through changes of the time
//     of day.
//   - Waiting costs no polling. A waiter learns of a release by a watch, in milliseconds.
//   - Who waits gets the lock in the order of coming, see Waiting.
//
// # What it cannot promise
//
// That two processes never work at the same time. A process that stands still between the look at its context and the
// write, in a pause of its runtime, a swapped page, a suspended machine, may wake up when the lock is another's, and no
// lock service in the world can keep its write from leaving the machine. What can keep it out is the resource that is
// written to. So let it check the fence:
//
//   - In the same etcd, add [Lock.Guard] to the compares of your transaction: it commits only while the lock is held.
//   - Elsewhere, send [Lock.Token] with every write, let the resource keep the greatest token that it has seen, and refuse smaller
//     ones: UPDATE … SET …, token = $1 WHERE id = $2 AND token <= $1.
//     Package fencing does this for SQL and HTTP.
//
// A lock without a fence is good for saving work that should not be done twice; not for what must not.
//
// # Waiting
//
// [Client.Lock] queues. Each waiter has a ticket in etcd, which people see, and follows the one before it: a release
// wakes one waiter however many there are, and a hold that was waited for takes four requests at any length of the
// queue. [OnWait] tells holder and place meanwhile, by one small request a second at most, and so does the [*HeldError]
// of who gives up.
//
// A waiter that dies costs those behind it at most the ten seconds that its lease lives on. One that was cut off for
// longer has lost its place, knows it, and queues again at the end. When the newest waiter dies, those who come before
// one of the others notices, within ten seconds, may get the lock first; that apart nobody is overtaken, except by
// those who do not queue: clients that know nothing of it, and [WithoutQueue]. Readers and light permits cannot keep
// out a writer or a heavy weight that waits, however often they come.
//
// Bound ctx, by a deadline or by what ends it: the wait has no end of its own. While etcd cannot be reached, Lock
// waits for etcd as it would wait for a holder.
//
// # Why there is no sync.Locker
//
// The Lock of a [sync.Locker] has no context and no error, so an adapter could only panic or block for ever when etcd
// refuses. The code that it protects would not learn that the lock was lost, nor its Unlock that it had been. Use
// [Client.Do], which says all of it.
//
// # More than a lock
//
//   - [Client.Once] runs a job once per period over all replicas.
//   - [Client.LockAll] and [Client.TryLockAll] take several locks, all or none.
//   - [Client.Pipeline] runs steps and asks etcd before each whether the lock is still held.
//   - [If] and [Then] compare and write keys of the caller's in the transaction that takes the lock, [Lock.UnlockWith] in the one that
//     gives it back. Package tasks is built of them.
//
// # Which durations to choose
//
// [AlertAfter] is how long the work takes on a bad day. After it people are alerted, and look. [AutoUnlockAfter]
// is how long the others can wait for a holder that is dead; it should leave people the time to look first. Without
// either they are 5 and 15 minutes; with one of them the other follows, as three times or a third. Both count anew from
// every [Lock.Alive]: call it where the work has made a step, not from a timer, and say which step. Then a holder that
// hangs is found by its silence.
//
// Where steps are long or unknown and the lock must be free soon after a crash, use [Heartbeat] with a short
// AutoUnlockAfter: the process extends by itself while it lives, but only until the maximum hold, and people are
// alerted after AlertAfter all the same.
//
// The context ends a [SafetyMargin] before the auto-unlock: a tenth of the time, at most 30 seconds. It should be
// longer than the work takes to stop.
//
// # Errors
//
// Names and options are checked before etcd is asked. Of what etcd says:
//
//   - [*HeldError], an [ErrHeld]: another holds the lock or is ahead in the queue. The text is one line for people; the
//     fields are for programs. Lock returns it when ctx ends during the wait, and it wraps the context's error then.
//   - [*LostError], an [ErrNotHeld]: the hold is over, or may be. From Alive, from Unlock and as the cause of the context.
//   - [ErrUnlocked], an [ErrNotHeld]: the cause of the context after Unlock.
//   - [*ConditionError], an [ErrCondition]: a compare of the caller's own did not hold.
//   - [ErrUnknown]: etcd did not answer, and the caller's own writes may have been done.
//   - [ErrClosed]: the client was closed.
//   - Any other: etcd refused or did not answer in time. After Lock and TryLock the lock is not held. After Alive the hold stands
//     as before. After Unlock the giving back goes on in the background until the client is closed.
//
// # The etcd client
//
// Make it with MaxUnaryRetries: 1, keepalive (DialKeepAliveTime: 10s) and all members as endpoints, reached directly
// and not through a proxy. Its user needs to read and write the prefix. All waits and watches of a [Client] share one
// connection.
package mutex
