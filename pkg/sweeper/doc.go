// Package sweeper removes locks whose holders are gone, and nothing else.
//
// A [Sweeper] gets what it needs as functions: the held locks, a clock, the freshness of the view, and how to announce
// itself and to remove locks. [Sweeper.Run] does three things concurrently:
//
//   - It observes itself. Every second it writes its presence to etcd, which proves that holders can write, too. It
//     compares its wall clock with those of the other unlockers and of etcd's members. And it remembers the last gap:
//     the last moment for which it cannot vouch that it saw what holders did.
//   - It scans all locks every few seconds, to learn which ones can become due before the next scan.
//   - It sleeps until exactly the moment at which package staleness allows the next removal, asks again, and removes in
//     guarded batches, oldest first. It decides anew before each batch.
//
// Any number of sweepers may run concurrently: the guards of the transaction let exactly one of them remove a lock.
//
// There is no state per lock, except for the few that alert or whose removal was tried. A restart loses nothing: it
// counts as a gap.
package sweeper
