// Package sweeper removes the locks whose holders are gone, and nothing else.
//
// A [Sweeper] is told by function values what it needs: the locks held now, a clock, whether the view of etcd is fresh,
// how to announce itself and how to remove. Three things happen at once while [Sweeper.Run] runs:
//
//   - It observes itself. Every second it puts its presence into etcd, which proves that holders could write, too; it compares
//     its wall clock with the other unlockers and with the members of etcd; and it remembers the last gap: the last moment
//     at which it can not vouch for having seen what holders did.
//   - It looks at every lock every few seconds, and knows from that which ones can be due before the next look.
//   - It sleeps until exactly the moment at which package staleness allows the next removal, asks again, and removes in
//     guarded batches, oldest first. Between batches it decides anew.
//
// Any number of sweepers may run side by side: the guards of the transaction let exactly one of them remove a lock.
//
// There is no state per lock but for the few that alert or whose removal was tried, so a restart loses nothing: it is a
// gap.
package sweeper
