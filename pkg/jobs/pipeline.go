package jobs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"time"

	"github.com/clustermutex/unlocker/pkg/mutex"
)

// Step is one step of a [Pipeline].
type Step struct {
	Name string                          // shown with the lock while the step runs
	Run  func(ctx context.Context) error // ctx ends when the lock is lost
}

// StepState is the outcome of a step.
type StepState string

// The states of steps.
const (
	StepNotRun StepState = "not run"
	StepDone   StepState = "done"
	StepFailed StepState = "failed" // it returned an error or panicked
)

// StopReason is why a pipeline did not reach its end.
type StopReason string

// Why a pipeline can stop early. An empty reason means that it reached its end.
const (
	StopNotLocked StopReason = "not locked" // the lock was not taken
	StopLost      StopReason = "lost"       // the lock was lost, or may be; the error says why
	StopFailed    StopReason = "failed"     // a step returned an error, or etcd refused to confirm the lock
	StopPanicked  StopReason = "panicked"   // a step panicked; the error is a [*PanicError]
	StopCancelled StopReason = "cancelled"  // the caller's context ended, or the client was closed
	// the holder was asked to finish; the error is a [*mutex.FinishRequestError]
	StopRequested StopReason = "requested"
)

// StepReport is the result of one step.
type StepReport struct {
	Name     string
	State    StepState
	Duration time.Duration // 0 if it did not run
	Err      error         // what it returned
}

// PipelineReport is the result of a pipeline.
type PipelineReport struct {
	Name       string        // of the lock
	UUID       string        // of the hold; empty if the lock was not taken
	Token      int64         // of the hold, see [mutex.Lock.Token]
	Steps      []StepReport  // all of them, in order
	StopReason StopReason    // empty if all steps were done while the lock was held
	Err        error         // why it stopped
	Duration   time.Duration // of the wait for the lock and the steps
}

// PanicError is the panic of a step.
type PanicError struct {
	Value any
	Stack string
}

func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// Pipeline takes the lock, waiting for it as [mutex.Client.Lock] does, and runs the steps in order. Before each step it
// calls [mutex.Lock.Alive], so choose durations for the longest step. It stops at the first step that fails or panics,
// when ctx ends, and when the lock is lost: then no further step begins, and the context of the running step ends.
//
// When the holder is asked to finish, the running step continues and no further step begins; the error is a
// [*mutex.FinishRequestError]. Put work that must not be left half done into one step.
//
// The error is the report's: nil if all steps were done and the lock was held throughout.
func Pipeline(ctx context.Context, locks *mutex.Client, name string, steps []Step,
	opts ...mutex.Option) (PipelineReport, error) {
	p := &pipeline{ctx: ctx, steps: steps, report: PipelineReport{Name: name, Steps: make([]StepReport, len(steps))}}
	if err := p.check(locks); err != nil {
		return p.report, fmt.Errorf("pipeline %q: %w", name, err)
	}
	began := time.Now()
	l, err := locks.Lock(ctx, name, opts...)
	if err != nil {
		p.report.StopReason = StopNotLocked
		p.report.Err = err
		p.report.Duration = time.Since(began)
		return p.report, err
	}
	p.lock = l
	p.report.UUID = l.UUID()
	p.report.Token = l.Token()
	p.run()
	p.report.Duration = time.Since(began)
	return p.report, p.report.Err
}

type pipeline struct {
	ctx    context.Context
	lock   *mutex.Lock
	steps  []Step
	report PipelineReport
}

func (p *pipeline) check(locks *mutex.Client) error {
	var err error
	for i, s := range p.steps {
		p.report.Steps[i] = StepReport{Name: s.Name, State: StepNotRun}
		switch {
		case s.Name == "":
			err = errors.Join(err, fmt.Errorf("step %d has no name", i+1))
		case s.Run == nil:
			err = errors.Join(err, fmt.Errorf("step %q has nothing to run", s.Name))
		}
	}
	switch {
	case locks == nil:
		err = errNoLocks
	case len(p.steps) == 0:
		err = errors.New("there are no steps")
	}
	if err != nil {
		p.report.StopReason = StopFailed
		p.report.Err = err
	}
	return err
}

// run runs the steps and releases the lock.
func (p *pipeline) run() {
	defer func() {
		if err := p.lock.Unlock(); err != nil && (p.report.StopReason == "" || errors.Is(err, mutex.ErrNotHeld)) {
			p.stop(err)
		}
	}()
	ctx, done := p.lock.WorkContext(p.ctx)
	defer done()
	for i := range p.steps {
		if err := p.runStep(ctx, i); err != nil {
			p.stop(err)
			return
		}
	}
}

// runStep runs a step if the lock is held and nothing else stops the pipeline.
func (p *pipeline) runStep(ctx context.Context, i int) error {
	s := p.steps[i]
	if err := cmp.Or(context.Cause(ctx), p.lock.FinishRequestError()); err != nil {
		return err
	}
	if err := p.confirm(ctx, fmt.Sprintf("step %d of %d: %s", i+1, len(p.steps), s.Name)); err != nil {
		return err
	}
	began := time.Now()
	err := withoutPanic(ctx, s.Run)
	r := &p.report.Steps[i]
	r.Duration = time.Since(began)
	r.State = StepDone
	r.Err = err
	if err != nil {
		r.State = StepFailed
	}
	return err
}

// confirm extends the lock. If its time is up, confirm waits for the end of the lock's context.
func (p *pipeline) confirm(ctx context.Context, progress string) error {
	err := p.lock.Alive(ctx, progress)
	if err != nil && !time.Now().Before(p.lock.Deadline()) {
		<-p.lock.Context().Done() // has ended or is about to
	}
	return err
}

// withoutPanic returns the error of a function. A panic becomes a [*PanicError].
func withoutPanic(ctx context.Context, run func(context.Context) error) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = &PanicError{Value: value, Stack: string(debug.Stack())}
		}
	}()
	return run(ctx)
}

// stop records the reason, which is not always the error of the step: most return only that their context ended.
func (p *pipeline) stop(err error) {
	r := &p.report
	ended := context.Cause(p.lock.Context())
	lost, isLost := ended.(*mutex.LostError)
	_, isPanic := errors.AsType[*PanicError](err)
	_, isAsked := errors.AsType[*mutex.FinishRequestError](err)
	r.Err = err
	switch {
	case isLost:
		r.StopReason = StopLost
		r.Err = joinCause(lost, err)
	case errors.Is(err, mutex.ErrNotHeld):
		r.StopReason = StopLost
	case isPanic:
		r.StopReason = StopPanicked
	case ended == mutex.ErrClosed:
		r.StopReason = StopCancelled
		r.Err = joinCause(ended, err)
	case p.ctx.Err() != nil:
		r.StopReason = StopCancelled
		r.Err = joinCause(context.Cause(p.ctx), err)
	case isAsked:
		r.StopReason = StopRequested
	default:
		r.StopReason = StopFailed
	}
}

// joinCause joins the cause with the error of a step, unless that error is the cause or only says that the context
// ended.
func joinCause(cause, err error) error {
	if errors.Is(err, cause) {
		return err
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) ||
		errors.Is(err, mutex.ErrNotHeld) {
		return cause
	}
	return errors.Join(cause, err)
}

// String returns a line for the whole and one for each step.
func (r PipelineReport) String() string {
	var b strings.Builder
	done := 0
	width := 0
	for _, s := range r.Steps {
		width = max(width, len(s.Name))
		if s.State == StepDone {
			done++
		}
	}
	fmt.Fprintf(&b, "lock %q: %d of %d steps done in %v", r.Name, done, len(r.Steps),
		r.Duration.Round(time.Millisecond))
	if r.StopReason != "" {
		fmt.Fprintf(&b, "; %s: %v", r.StopReason, r.Err)
	}
	for i, s := range r.Steps {
		fmt.Fprintf(&b, "\n  %d %-*s  %s", i+1, width, s.Name, s.State)
		if s.State != StepNotRun {
			fmt.Fprintf(&b, " after %v", s.Duration.Round(time.Millisecond))
		}
		if s.Err != nil {
			fmt.Fprintf(&b, ": %v", s.Err)
		}
	}
	return b.String()
}
