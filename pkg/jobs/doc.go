// Package jobs runs work under the locks of package mutex: once in each period ([OncePer]) or for each tick of a
// schedule ([OnceAt]), step by step ([Pipeline]), and task by task ([Tasks]). Running work is shown on the dashboard,
// like any holder of a lock. Examples are in docs/client-jobs.md.
//
// # Tasks
//
// A set of tasks hands each task to one worker at a time and loses no task when a worker dies.
//
// A task has a state. [Tasks.Take] takes it from a state such as "new" to "in_progress", and [Task.Finish] from there
// to one such as "done" or "failed"; [TaskOptions] say which transitions there are. Each change is made in the
// transaction that takes or releases the lock of the task: a task in progress is one whose lock is held.
//
// When a worker dies, the unlocker auto-unlocks the lock of its task once its time is up. The task is still
// "in_progress", but no worker holds it: it is stuck, and the next Take takes it again, as another attempt. A worker
// that was only paused and resumes after losing its task is refused: Finish and [Task.Save] work only while the lock is
// held. What it writes elsewhere needs a fence; see [Task.Token].
//
// Attempts are counted until the task finishes in a state that is not a failure. A task that has reached
// [TaskOptions].MaxAttempts is no longer taken, and [Tasks.List] shows it as exhausted, until [Tasks.Reset] is called.
//
// A set is not a queue for millions of tasks. Every Take reads the set, so keep it to thousands and remove finished
// tasks ([Task.FinishAndRemove]). Tasks are taken in no particular order.
package jobs
