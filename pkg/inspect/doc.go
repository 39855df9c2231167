// Package inspect reads locks without taking them, and force-unlocks them: for programs that supervise others, as
// mutexctl and the dashboard do. To take locks, use package mutex.
//
//	inspector, err := inspect.New(etcd, inspect.Options{})
//	...
//	for r, err := range inspector.List(ctx, "billing/") {
//		if err != nil {
//			return err
//		}
//		fmt.Println(r.Name, r.Owner, r.Hostname, r.LockedAt, r.Purpose)
//	}
//
// Names, owners, purposes and attributes are text that other programs wrote: escape them. Times are by the holder's
// clock; package staleness judges them.
//
// A record is one hold. A plain lock has at most one holder; a semaphore or read-write lock may have several, whose
// records are named after the lock with a number: "pool#2". [Inspector.List] yields each record by itself;
// [Inspector.Get] and [Inspector.Watch] combine the records of a lock.
//
// The etcd user needs to read the prefix. For [Inspector.ForceUnlock] it needs to write there, too.
package inspect
