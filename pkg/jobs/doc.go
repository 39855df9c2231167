// Package jobs runs work under the locks of package mutex: once in each period ([OncePer]) or for each tick of a
// schedule ([OnceAt]), step by step ([Pipeline]), and task by task ([Tasks]). Running work is shown on the dashboard,
// like any holder of a lock. Examples and results are in docs/client-jobs.md.
//
// A set of tasks hands each task to one worker at a time and loses no task when a worker dies. [Tasks.Take] takes a
// task from a state such as "new" to "in_progress", and [Task.Finish] from there to one such as "done" or "failed";
// [TaskOptions] say which transitions there are. Each change is made in the transaction that takes or releases the lock
// of the task. When a worker dies, the unlocker auto-unlocks that lock: the task is stuck, and the next Take takes it
// again, as another attempt. A worker that resumes after losing its task is refused; what it writes elsewhere needs a
// fence, see [Task.Token].
//
// Attempts are counted until the task finishes in a state that is not a failure. A task that has reached
// [TaskOptions].MaxAttempts is no longer taken until [Tasks.Reset] is called. Every Take reads the set, so keep it to
// thousands of tasks. They are taken in no particular order.
package jobs
