// Package tasks hands each task of a set to one worker at a time, and lets no task get lost when its worker dies.
//
//	invoices, err := tasks.New(etcd, locks, "invoices", tasks.Options{MaxAttempts: 3})
//	...
//	added, err := invoices.Add(ctx, "2026-08/acme", `{"customer": 17}`)
//	...
//	captured, err := invoices.Capture(ctx, 10)
//	for _, task := range captured {
//		state, note := tasks.StateDone, ""
//		if err := send(task.Context(), task.Data()); err != nil {
//			state, note = tasks.StateFailed, err.Error()
//		}
//		err = task.Finish(state, note)
//	}
//
// A task has a state. [Set.Capture] takes it from a state such as "new" to "in_progress", and [Task.Finish] from there
// to one such as "done" or "failed"; which ways there are, the [Options] say. Each change is one transaction in etcd,
// together with taking or giving back the lock of the task: a task in progress is one whose lock is held, and people
// see it on the dashboard with its worker, like any lock.
//
// # When a worker dies
//
// The lock of its task is auto-unlocked by the unlocker when its time is up. The task is still "in_progress", but
// nobody holds it: it is stuck, and the next Capture takes it again, as another attempt. So run an unlocker, and choose
// durations as for any lock. A worker that only stood still, and comes back after its task was taken away, is refused:
// Finish and [Task.Save] work only while the lock is held. What it writes elsewhere needs a fence, see [Task.Token].
//
// Attempts are counted until the task ends in a state that is no failure. One that reached [Options.MaxAttempts] is not
// captured any more, and [Set.List] shows it as exhausted, until somebody calls [Set.Reset].
//
// # What it is not
//
// A queue of millions. Every Capture reads the set, so keep thousands of tasks in it and remove those that are done
// ([Task.FinishAndRemove]). Tasks are captured in no particular order.
package tasks
