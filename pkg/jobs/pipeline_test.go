package jobs_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/pkg/jobs"
	"github.com/clustermutex/unlocker/pkg/locktest"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

// sleeping is a step that takes this long, or until its context ends.
func sleeping(d time.Duration) func(context.Context) error {
	return func(ctx context.Context) error {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(d):
			return nil
		}
	}
}

func TestStepsRunInOrderAndPeopleSeeWhichOne(t *testing.T) {
	inMemory(t, func(t *testing.T, s *locktest.Server, locks *mutex.Client) {
		disturb(s, func(send commit) (*clientv3.TxnResponse, error) {
			time.Sleep(time.Millisecond)
			return send()
		})
		var seen []string
		look := func(ctx context.Context) error {
			doc := s.AssertHeld("deploy")
			seen = append(seen, doc.Alive.Progress)
			if d := time.Until(doc.AutoUnlockAt).Round(time.Second); d != 3*time.Minute {
				t.Errorf("the auto-unlock is in %v", d)
			}
			return sleeping(2 * time.Minute)(ctx)
		}
		report, err := jobs.Pipeline(context.Background(), locks, "deploy",
			[]jobs.Step{{"fetch", look}, {"build", look},
				{"publish", look}},
			mutex.AlertAfter(time.Minute), mutex.AutoUnlockAfter(3*time.Minute))
		if err != nil || report.Stop != "" || report.Token == 0 || report.UUID == "" ||
			report.Took.Round(time.Second) != 6*time.Minute {
			t.Errorf("%v: %+v", err, report)
		}
		if got, want := fmt.Sprint(seen), "[step 1 of 3: fetch step 2 of 3: build step 3 of 3: publish]"; got != want {
			t.Errorf("people saw %s", got)
		}
		want := `lock "deploy": 3 of 3 steps done in 6m0.005s
  1 fetch    done after 2m0s
  2 build    done after 2m0s
  3 publish  done after 2m0s`
		if got := report.String(); got != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
		s.AssertFree("deploy")
	})
}

func TestPipelineTellsWhyItStopped(t *testing.T) {
	broken := errors.New("the disk is full")
	ok := func(context.Context) error { return nil }
	for _, c := range []struct {
		name  string
		steps func(s *locktest.Server, cancel context.CancelCauseFunc) []jobs.Step
		stop  jobs.Stop
		done  int
		err   string
	}{
		{"a step fails", func(*locktest.Server, context.CancelCauseFunc) []jobs.Step {
			return []jobs.Step{{"one", ok}, {"two", func(context.Context) error { return broken }}, {"three", ok}}
		}, jobs.StopFailed, 1, "the disk is full"},
		{"a step panics", func(*locktest.Server, context.CancelCauseFunc) []jobs.Step {
			return []jobs.Step{{"one", func(context.Context) error { panic("oh") }}, {"two", ok}}
		}, jobs.StopPanicked, 0, "panic: oh"},
		{"the caller cancels", func(_ *locktest.Server, cancel context.CancelCauseFunc) []jobs.Step {
			return []jobs.Step{{"one", func(ctx context.Context) error {
				cancel(errors.New("the shift is over"))
				return sleeping(time.Hour)(ctx)
			}}, {"two", ok}}
		}, jobs.StopCancelled, 0, "the shift is over"},
		{"the caller cancels between steps", func(_ *locktest.Server, cancel context.CancelCauseFunc) []jobs.Step {
			return []jobs.Step{{"one", func(context.Context) error { cancel(nil); return nil }}, {"two", ok}}
		}, jobs.StopCancelled, 1, "context canceled"},
		{"somebody takes the lock away between steps", func(s *locktest.Server, _ context.CancelCauseFunc) []jobs.Step {
			return []jobs.Step{{"one", func(context.Context) error { s.ForceUnlock("deploy", "it hung"); return nil }},
				{"two", ok}}
		}, jobs.StopLost, 1, `lock "deploy" was lost: force-unlocked by operator`},
		{"somebody takes the lock away in a step", func(s *locktest.Server, _ context.CancelCauseFunc) []jobs.Step {
			return []jobs.Step{{"one", func(ctx context.Context) error {
				time.Sleep(time.Second) // until it is watched
				s.ForceUnlock("deploy", "it hung")
				return sleeping(time.Hour)(ctx)
			}}, {"two", ok}}
		}, jobs.StopLost, 0, `lock "deploy" was lost: force-unlocked by operator`},
		{"somebody takes the lock away in the last step",
			func(s *locktest.Server, _ context.CancelCauseFunc) []jobs.Step {
				return []jobs.Step{{"one", ok},
					{"two", func(context.Context) error { s.ForceUnlock("deploy", "it hung"); return nil }}}
			}, jobs.StopLost, 2, `lock "deploy" was lost: force-unlocked by operator`},
		{"a step hangs for longer than the lock lives", func(*locktest.Server, context.CancelCauseFunc) []jobs.Step {
			return []jobs.Step{{"one", sleeping(time.Hour)}, {"two", ok}}
		}, jobs.StopLost, 0, `lock "deploy" may be lost: its time ran out`},
		{"etcd is away between steps", func(s *locktest.Server, _ context.CancelCauseFunc) []jobs.Step {
			return []jobs.Step{{"one", func(context.Context) error { s.Cut(); return nil }},
				{"two", ok}}
		}, jobs.StopLost, 1, `lock "deploy" may be lost: its time ran out`},
	} {
		t.Run(c.name, func(t *testing.T) {
			inMemory(t, func(t *testing.T, s *locktest.Server, locks *mutex.Client) {
				ctx, cancel := context.WithCancelCause(context.Background())
				defer cancel(nil)
				report, err := jobs.Pipeline(ctx, locks, "deploy", c.steps(s, cancel),
					mutex.AutoUnlockAfter(3*time.Minute))
				done := 0
				for _, step := range report.Steps {
					if step.State == jobs.StepDone {
						done++
					}
				}
				if report.Stop != c.stop || done != c.done || err == nil || !strings.HasPrefix(err.Error(), c.err) ||
					strings.Contains(err.Error(), "\n") || report.Err != err {
					t.Errorf("stop %q after %d steps: %v", report.Stop, done, err)
				}
				if p, ok := errors.AsType[*jobs.PanicError](err); ok &&
					!strings.Contains(p.Stack, "pipeline_test.go") {
					t.Errorf("the stack is %s", p.Stack)
				}
				if last := report.Steps[len(report.Steps)-1]; c.done < len(report.Steps) &&
					last.State != jobs.StepNotRun {
					t.Errorf("the last step is %s", last.State)
				}
				if _, rest, found := strings.Cut(report.String(), "; "+string(c.stop)+": "); !found ||
					!strings.HasPrefix(rest, c.err) {
					t.Errorf("the report says\n%s", report)
				}
			})
		})
	}
}

func TestPipelineThatGetsNoLockRunsNothing(t *testing.T) {
	inMemory(t, func(t *testing.T, s *locktest.Server, locks *mutex.Client) {
		s.Hold("deploy")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		report, err := jobs.Pipeline(ctx, locks, "deploy",
			[]jobs.Step{{"one", func(context.Context) error { t.Error("it ran"); return nil }}})
		if _, isHeld := errors.AsType[*mutex.HeldError](err); !isHeld || report.Stop != jobs.StopNotLocked ||
			report.Took == 0 || report.Steps[0].State != jobs.StepNotRun {
			t.Errorf("%v: %s", err, report)
		}
	})
}

func TestPipelineStopsBeforeItsNextStepWhenItIsAsked(t *testing.T) {
	inMemory(t, func(t *testing.T, s *locktest.Server, locks *mutex.Client) {
		asked := func(ctx context.Context) error {
			time.Sleep(time.Second)
			s.Ask("deploy", "ann", "the fix has to go out first")
			return sleeping(time.Minute)(ctx)
		}
		report, err := jobs.Pipeline(context.Background(), locks, "deploy",
			[]jobs.Step{{"fetch", asked}, {"build", sleeping(time.Minute)}})
		e, isAsked := errors.AsType[*mutex.AskedError](err)
		if !isAsked || e.Request.By != "ann" || report.Stop != jobs.StopAsked || report.Err != err {
			t.Errorf("stopped %q because of %v", report.Stop, err)
		}
		const says = `asked: the holder of lock "deploy" was asked to finish by ann 60 seconds ago: ` +
			`the fix has to go out first`
		if !strings.Contains(report.String(), says) {
			t.Errorf("the report says\n%v", report)
		}
		if report.Steps[0].State != jobs.StepDone || report.Steps[1].State != jobs.StepNotRun {
			t.Errorf("the steps are %+v", report.Steps)
		}
		s.AssertFree("deploy")
	})
}
