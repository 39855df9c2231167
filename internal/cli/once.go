package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/pflag"

	"github.com/clustermutex/unlocker/internal/cli/childproc"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/jobs"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

// periodFlags are the flags of run for commands that run once per period.
type periodFlags struct {
	every       time.Duration // 0: always
	offset      time.Duration
	backOnError bool
	skipStatus  int
	given       *pflag.FlagSet
}

func (p *periodFlags) add(f *pflag.FlagSet) {
	p.given = f
	f.DurationVar(&p.every, "once-per", 0, "run the command once per period of this length, across all machines")
	f.DurationVar(&p.offset, "period-offset", 0,
		"with --once-per: how long after the full hour, or midnight UTC, periods begin")
	f.BoolVar(&p.backOnError, "back-on-error", false,
		"with --once-per: a failed command does not use up the period")
	f.IntVar(&p.skipStatus, "skip-status", ExitOK,
		"with --once-per: the exit status when the period is already used up")
}

// check refuses flags that make no sense, before etcd is asked.
func (p *periodFlags) check(t *takeFlags) error {
	once := p.given.Changed("once-per")
	for _, name := range []string{"period-offset", "back-on-error", "skip-status"} {
		if !once && p.given.Changed(name) {
			return usagef("--%s goes with --once-per", name)
		}
	}
	switch {
	case !once:
		return nil
	case p.every < jobs.MinPeriod || p.every > jobs.MaxPeriod:
		return usagef("--once-per is %v, it must be between %v and %v", p.every, jobs.MinPeriod, jobs.MaxPeriod)
	case p.offset < 0 || p.offset >= p.every:
		return usagef("--period-offset is %v, it must be shorter than --once-per, which is %v, and not negative",
			p.offset, p.every)
	case p.skipStatus < 0 || p.skipStatus > 255:
		return usagef("--skip-status is %d, it must be between 0 and 255", p.skipStatus)
	case t.kind() != "":
		return usagef("--once-per runs one command at a time, so it does not go with --semaphore, --shared and " +
			"--exclusive")
	}
	return nil
}

// next is when the period after the one that began at start begins.
func (p *periodFlags) next(start time.Time) time.Time {
	past := (start.UnixNano() - int64(p.offset)) % int64(p.every)
	return start.Add(p.every - time.Duration(past))
}

// once runs the command unless its period is used up. While an earlier run has the lock it waits, then tries again.
func (j *job) once() error {
	ctx, stop := j.wait.bound(j.signals.Context())
	defer stop()
	asking := ctx
	if j.wait.none() {
		asking = j.signals.Context()
	}
	if err := j.s.reach(asking, j.wait); err != nil {
		return err
	}
	for {
		var (
			c         *childproc.Child
			work, own error
		)
		ran, err := jobs.OncePer(j.signals.Context(), j.locks, j.name, j.every, func(held context.Context) error {
			c, work = j.work(mutex.FromContext(held))
			if own = work; c != nil && !j.backOnError {
				own = nil // it began, so the period is used up
			}
			return own
		}, jobs.PeriodOffset(j.offset), jobs.PeriodBackOnError())
		held, isHeld := errors.AsType[*mutex.HeldError](err)
		switch {
		case ran:
			err = j.outcome(work, beside(err, own))
			c.InterruptToo()
			return err
		case err == nil:
			return j.skipped()
		case !isHeld:
			return j.periodError(err)
		}
		if err := j.worthWaiting(held); err != nil {
			return err
		}
		if err := j.s.untilFree(ctx, j.name, true, held.Error()); err != nil {
			return err
		}
		sleep(ctx, gather) // a client that takes it at every chance must not keep us and etcd busy
	}
}

// periodError is why the period could not be taken: etcd, or a clock that is wrong.
func (j *job) periodError(err error) error {
	_, isPeriod := errors.AsType[*jobs.PeriodError](err)
	_, isClock := errors.AsType[*jobs.ClockError](err)
	if isPeriod || isClock {
		return fmt.Errorf("%w; see \"mutexctl help periods\"", err)
	}
	return j.s.explain(j.signals.Context(), "take the period of "+text.Visible(j.name), err)
}

// beside is what was joined to the error.
func beside(err, to error) error {
	if err == to {
		return nil
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return err
	}
	var others []error
	for _, e := range joined.Unwrap() {
		if e != to {
			others = append(others, e)
		}
	}
	return errors.Join(others...)
}

// skipped reports who ran the command in this period, and when it runs next.
func (j *job) skipped() error {
	period, err := jobs.LastPeriod(j.signals.Context(), j.locks, j.name)
	switch {
	case err != nil && j.signals.Context().Err() != nil:
		return context.Cause(j.signals.Context())
	case err != nil:
		j.app.mention("not run: the period is used up; by whom cannot be read: %v", err)
	default:
		j.app.mention("not run: %s", j.used(period))
	}
	return passedOn(j.skipStatus)
}

func (j *job) used(period jobs.Period) string {
	next := j.next(period.Start)
	return fmt.Sprintf("the period that began %s is used up, %s; the next one begins %s",
		instant(period.Start, j.app.Now()), period.Note, instant(next, j.app.Now()))
}
