// Package mutexmetrics exports metrics about the locks of a program to Prometheus, through the hooks of package mutex.
//
//	metrics := mutexmetrics.New(mutexmetrics.Options{})
//	prometheus.MustRegister(metrics)
//	locks, err := mutex.New(etcd, mutex.Options{Owner: "billing", Hooks: metrics.Hooks()})
//
// The metrics:
//
//	mutex_acquisitions_total{result}  how Lock, TryLock and Do ended: acquired, held, gave_up, refused, error
//	mutex_wait_seconds                time until a lock was taken or the caller gave up (histogram)
//	mutex_waiting                     calls of Lock and Do in progress
//	mutex_held                        locks that are held
//	mutex_hold_seconds                how long locks were held, once they no longer are (histogram)
//	mutex_extensions_total{result}    Alive and heartbeats: extended, lost, error
//	mutex_lost_total{reason}          holds that were lost: forced, auto_unlocked, abandoned, removed, time
//	mutex_releases_total{result}      Unlock: released, lost, error
//	mutex_asked_total                 requests to finish that holders learned of
//	mutex_given_time_total            times that a holder was given more time
//
// All series exist from the start, so that rates include the first event. Several clients of one program may share the
// metrics. Adopted locks count when they are extended, released or lost, but not as acquired or held.
//
// # Labels
//
// Lock names are not labels: they contain customer numbers and dates, and each would remain a series forever. The
// unlocker's own metrics show which lock is stuck. If a program has a few kinds of work, [Options.Group] derives a
// label from the name, with at most [Options.MaxGroups] values:
//
//	Group: func(lock string) string { kind, _, _ := strings.Cut(lock, "/"); return kind }
package mutexmetrics
