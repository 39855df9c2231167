package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/clustermutex/unlocker/internal/cli/childproc"
	"github.com/clustermutex/unlocker/pkg/jobs"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

// runOnce runs the command, unless the tick or period is used up. While an earlier run holds the lock, it waits, then
// tries again.
func (j *job) runOnce() error {
	ctx, stop := j.wait.withTimeout(j.signals.Context())
	defer stop()
	if err := j.s.waitForEtcd(ctx, j.wait); err != nil {
		return err
	}
	for {
		var (
			c              *childproc.Child
			runErr, jobErr error
		)
		run := func(held context.Context) error {
			c, runErr = j.runCommand(mutex.FromContext(held))
			if jobErr = runErr; c != nil && !j.retryOnError {
				jobErr = nil // the command started, so the tick is used up
			}
			return jobErr
		}
		ran, err := j.once(run)
		held, isHeld := errors.AsType[*mutex.HeldError](err)
		switch {
		case ran:
			err = j.outcome(runErr, releaseError(err, jobErr))
			c.AfterRelease()
			return err
		case err == nil:
			return j.reportSkipped()
		case !isHeld:
			return j.onceError(err)
		}
		if err := j.checkWaiting(held); err != nil {
			return err
		}
		if err := j.s.untilFree(ctx, j.name, true, held.Error()); err != nil {
			return err
		}
		sleep(ctx, updateDelay) // or a client that keeps taking the lock would keep us and etcd busy
	}
}

// releaseError returns what was joined to the error of a job: that the lock or the tick could not be given back.
func releaseError(err, jobErr error) error {
	joined, isJoined := err.(interface{ Unwrap() []error })
	switch {
	case err == jobErr:
		return nil
	case jobErr == nil || !isJoined:
		return err
	}
	isJob := func(e error) bool { return e == jobErr }
	return errors.Join(slices.DeleteFunc(slices.Clone(joined.Unwrap()), isJob)...)
}

func (j *job) once(run func(context.Context) error) (ran bool, err error) {
	if !j.tick.IsZero() {
		return jobs.OnceAt(j.signals.Context(), j.locks, j.name, j.tick, run, jobs.RetryOnError())
	}
	return jobs.OncePer(j.signals.Context(), j.locks, j.name, j.every, run, jobs.PeriodOffset(j.offset),
		jobs.RetryOnError())
}

// onceError explains why the job did not run: because of etcd, or a wrong clock.
func (j *job) onceError(err error) error {
	_, isPeriod := errors.AsType[*jobs.PeriodError](err)
	_, isClock := errors.AsType[*jobs.ClockError](err)
	if isPeriod || isClock {
		return fmt.Errorf("%w; see \"mutexctl help periods\"", err)
	}
	return j.s.explain(j.signals.Context(), "start the command", err)
}

// reportSkipped reports who used up the tick or period, and when the next period begins.
func (j *job) reportSkipped() error {
	period, err := jobs.LastPeriod(j.signals.Context(), j.locks, j.name)
	switch {
	case err != nil && j.signals.Context().Err() != nil:
		return context.Cause(j.signals.Context())
	case err != nil:
		j.app.noteUnlessQuiet("not run: another did; who it was cannot be read: %v", err)
	default:
		j.app.noteUnlessQuiet("not run: %s", j.usedText(period))
	}
	return commandStatus(j.skipStatus)
}

func (j *job) usedText(period jobs.Period) string {
	if !j.tick.IsZero() {
		return fmt.Sprintf("the tick of %s is used up, %s", timeText(period.Start, j.app.Now()), period.Note)
	}
	past := (period.Start.UnixNano() - int64(j.offset)) % int64(j.every)
	next := period.Start.Add(j.every - time.Duration(past))
	return fmt.Sprintf("the period that began %s is used up, %s; the next one begins %s",
		timeText(period.Start, j.app.Now()), period.Note, timeText(next, j.app.Now()))
}
