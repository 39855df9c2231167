// Package mutexotel traces and measures the locks of a program with OpenTelemetry, through the hooks of package mutex.
//
//	telemetry, err := mutexotel.New(mutexotel.Options{})
//	locks, err := mutex.New(etcd, mutex.Options{
//		Owner: "billing", Hooks: telemetry.Hooks(), ContextOptions: mutexotel.TraceAttributes,
//	})
//
// Each Lock, TryLock and Do makes a span "lock wait", and each hold a span "lock hold", both children of the span in
// whose context the lock was requested. Their attributes:
//
//	mutex.lock      the lock's name
//	mutex.result    of a wait: acquired, held, gave_up, refused, error
//	mutex.outcome   of a hold: released, lost, error; detached or closed if this process no longer keeps it
//	mutex.reason    of a hold that was lost: forced, auto_unlocked, abandoned, removed, time
//	mutex.owner     of a hold: who holds the lock, as its record says
//	mutex.token     of a hold: its fencing token
//	mutex.uuid      of a hold: its identity on the dashboard and in the audit trail
//
// A wait span has failed if its result is error, a hold span if the hold was lost. A hold has events: "asked to finish"
// and "given more time". The span of a wait appears once the wait is over; the dashboard shows who is waiting.
//
// The metrics, histograms in seconds:
//
//	mutex.wait.duration   how long calls waited, with mutex.result
//	mutex.hold.duration   how long locks were held, with mutex.outcome and mutex.reason
//
// Lock names are not among their attributes, because each would remain a series forever; [Options.Group] derives an
// attribute with few values from them. Both are recorded in the context of their span, so that the SDK can attach
// exemplars that lead from the histograms to the traces.
//
// [TraceAttributes] writes the ids of the caller's trace and span into the record of the lock. From there the page of
// the lock leads to the trace: mutexdash --web.link 'trace=https://tempo.example/trace/{trace}'.
package mutexotel
