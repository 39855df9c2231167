// Package mutexmetrics tells Prometheus what becomes of the locks of a program, by the hooks of package mutex.
//
//	metrics := mutexmetrics.New(mutexmetrics.Options{})
//	prometheus.MustRegister(metrics)
//	locks, err := mutex.New(etcd, mutex.Options{Owner: "billing", Hooks: metrics.Hooks()})
//
// What it tells:
//
//	mutex_acquisitions_total{result}  how Lock, TryLock and Do ended: acquired, held, gave_up, refused, error
//	mutex_wait_seconds                how long those waited who got the lock or gave up (histogram)
//	mutex_waiting                     calls of Lock and Do that have not ended
//	mutex_held                        locks that are held
//	mutex_hold_seconds                how long locks were held that are not held any more (histogram)
//	mutex_extensions_total{result}    Alive and heartbeats: extended, lost, error
//	mutex_lost_total{reason}          holds that were lost: forced, auto_unlocked, abandoned, removed, time
//	mutex_releases_total{result}      Unlock: released, lost, error
//
// All series are there from the beginning, so that rates begin with the first event. Several clients of one program may
// share the metrics. Locks that were adopted are counted when they are extended, released and lost, not as acquired or
// held.
//
// # Labels
//
// The name of a lock is no label: names hold numbers of customers and dates, and each would be a series for ever. Which
// lock is stuck is what the unlocker's own metrics tell. Where a program has a few kinds of work, [Options.Group] makes
// a label of the name, and no more than [Options.MaxGroups] of them:
//
//	Group: func(lock string) string { kind, _, _ := strings.Cut(lock, "/"); return kind }
package mutexmetrics
