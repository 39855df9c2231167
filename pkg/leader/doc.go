// Package leader elects one of many processes as the leader, and lets all others see which. A leader is the holder of a
// lock of package mutex: on the dashboard, in mutexctl and in alerts it is one like any other.
//
//	err := leader.Lead(ctx, locks, "scheduler", leader.Options{Address: "10.0.0.7:8080"}, schedule)
//
// [Lead] waits until this process leads, runs schedule, and stands again when the leadership was lost; its context ends
// then. To resign, return. [Campaign] is the same by hand: it returns the lock, whose Unlock resigns.
//
// While it leads, the process calls alive every third of [Options].Life, if it is healthy by [Options].Check. A leader
// that dies is replaced after at most Life and what the unlocker takes to remove its lock, earlier if a witness saw it
// die and the unlocker removes abandoned locks, and never if no unlocker removes any. A leader that resigns is replaced
// within milliseconds.
//
// # Observing
//
// [Current] reads who leads now, and [Observe] follows it:
//
//	for r, err := range leader.Observe(ctx, inspector, "scheduler") {
//		switch {
//		case err != nil:
//			log.Printf("who leads is not known: %v", err)
//		case r == nil:
//			log.Print("nobody leads")
//		default:
//			log.Printf("%s on %s leads since %v; its address is %s", r.Owner, r.Hostname, r.LockedAt, leader.Address(r))
//		}
//	}
//
// # What it cannot promise
//
// That there are never two leaders. Like every lock, leadership may end while the process does not look: see package
// mutex. After a silent leader's context has ended, by this machine's clock, another may lead, but writes that are on
// their way arrive. Send the token of the lock with every write, or have etcd check its Guard: mutex.FromContext finds
// the lock in the context of the work.
package leader
