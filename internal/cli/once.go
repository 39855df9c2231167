package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/clustermutex/unlocker/internal/cli/childproc"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/jobs"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

// runOncePerPeriod runs the command, unless the period is used up. While an earlier run holds the lock, it waits, then
// tries again.
func (j *job) runOncePerPeriod() error {
	ctx, stop := j.wait.withTimeout(j.signals.Context())
	defer stop()
	first := ctx
	if j.wait.triesOnce() {
		first = j.signals.Context()
	}
	if err := j.s.waitForEtcd(first, j.wait); err != nil {
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
				jobErr = nil // the command started, so the period is used up
			}
			return jobErr
		}
		ran, err := jobs.OncePer(j.signals.Context(), j.locks, j.name, j.every, run,
			jobs.PeriodOffset(j.offset), jobs.RetryOnError())
		held, isHeld := errors.AsType[*mutex.HeldError](err)
		switch {
		case ran:
			err = j.outcome(runErr, withoutError(err, jobErr))
			c.AfterRelease()
			return err
		case err == nil:
			return j.reportSkipped()
		case !isHeld:
			return j.periodError(err)
		}
		if err := j.checkWaiting(held); err != nil {
			return err
		}
		if err := j.s.untilFree(ctx, j.name, true, held.Error()); err != nil {
			return err
		}
		sleep(ctx, batchDelay) // or a client that keeps taking the lock would keep us and etcd busy
	}
}

// periodError explains why the period could not be taken: because of etcd, or a wrong clock.
func (j *job) periodError(err error) error {
	_, isPeriod := errors.AsType[*jobs.PeriodError](err)
	_, isClock := errors.AsType[*jobs.ClockError](err)
	if isPeriod || isClock {
		return fmt.Errorf("%w; see \"mutexctl help periods\"", err)
	}
	return j.s.explain(j.signals.Context(), "take the period of "+text.Visible(j.name), err)
}

// withoutError returns a joined error without one of its errors.
func withoutError(err, one error) error {
	if err == one {
		return nil
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return err
	}
	var others []error
	for _, e := range joined.Unwrap() {
		if e != one {
			others = append(others, e)
		}
	}
	return errors.Join(others...)
}

// reportSkipped reports who used up the period, and when the next one begins.
func (j *job) reportSkipped() error {
	period, err := jobs.LastPeriod(j.signals.Context(), j.locks, j.name)
	switch {
	case err != nil && j.signals.Context().Err() != nil:
		return context.Cause(j.signals.Context())
	case err != nil:
		j.app.noteUnlessQuiet("not run: the period is used up; who used it up cannot be read: %v", err)
	default:
		j.app.noteUnlessQuiet("not run: %s", j.usedText(period))
	}
	return commandStatus(j.skipStatus)
}

func (j *job) usedText(period jobs.Period) string {
	next := j.next(period.Start)
	return fmt.Sprintf("the period that began %s is used up, %s; the next one begins %s",
		timeText(period.Start, j.app.Now()), period.Note, timeText(next, j.app.Now()))
}
