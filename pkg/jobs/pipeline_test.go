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

// sleeping is a step that takes this long, or until its context ends. As most do, it does not say why that was.
func sleeping(d time.Duration) func(context.Context) error {
	return func(ctx context.Context) error {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(d):
			return nil
		}
	}
}

func TestStepsRunInOrderAndReportProgress(t *testing.T) {
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
		if err != nil || report.StopReason != "" || report.Token == 0 || report.UUID == "" ||
			report.Duration.Round(time.Second) != 6*time.Minute {
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

func TestPipelineReportsWhyItStopped(t *testing.T) {
	type world struct {
		context.Context
		*locktest.Server
		cancel context.CancelCauseFunc
	}
	const forced = `lock "deploy" was lost: force-unlocked by operator`
	const ranOut = `lock "deploy" may be lost: its time ran out`
	for _, c := range []struct {
		name string
		step func(w world) error // the second of three, or the last
		last bool
		stop jobs.StopReason
		done int
		err  string
	}{
		{"it fails", func(world) error { return errors.New("the disk is full") }, false,
			jobs.StopFailed, 1, "the disk is full"},
		{"it panics", func(world) error { panic("oh") }, false, jobs.StopPanicked, 1, "panic: oh"},
		{"the caller cancels", func(w world) error {
			w.cancel(errors.New("the shift is over"))
			return context.Cause(w)
		}, false, jobs.StopCancelled, 1, "the shift is over"},
		{"the caller cancels between steps", func(w world) error { w.cancel(nil); return nil }, false,
			jobs.StopCancelled, 2, "context canceled"},
		{"somebody takes the lock away in a step", func(w world) error {
			time.Sleep(time.Second) // until it is watched
			w.ForceUnlock("deploy", "it hung")
			return sleeping(time.Hour)(w)
		}, false, jobs.StopLost, 1, forced},
		{"somebody takes the lock away between steps",
			func(w world) error { w.ForceUnlock("deploy", "it hung"); return nil }, false, jobs.StopLost, 2, forced},
		{"somebody takes the lock away in the last step",
			func(w world) error { w.ForceUnlock("deploy", "it hung"); return nil }, true, jobs.StopLost, 3, forced},
		{"it hangs for longer than the lock lives", func(w world) error { return sleeping(time.Hour)(w) }, false,
			jobs.StopLost, 1, ranOut},
		{"somebody asks it to finish", func(w world) error {
			time.Sleep(time.Second)
			w.AskToFinish("deploy", "ann", "the fix has to go out first")
			return sleeping(time.Minute)(w)
		}, false, jobs.StopRequested, 2, `the holder of lock "deploy" was asked to finish by ann 60 seconds ago: ` +
			`the fix has to go out first`},
		{"etcd is away between steps", func(w world) error { w.Disconnect(); return nil }, false, jobs.StopLost, 2,
			ranOut},
	} {
		t.Run(c.name, func(t *testing.T) {
			inMemory(t, func(t *testing.T, s *locktest.Server, locks *mutex.Client) {
				ctx, cancel := context.WithCancelCause(context.Background())
				defer cancel(nil)
				ok := func(context.Context) error { return nil }
				steps := []jobs.Step{{"one", ok}, {"two", ok}, {"three", ok}}
				disturbed := &steps[1]
				if c.last {
					disturbed = &steps[2]
				}
				disturbed.Run = func(ctx context.Context) error { return c.step(world{ctx, s, cancel}) }
				report, err := jobs.Pipeline(ctx, locks, "deploy", steps, mutex.AutoUnlockAfter(3*time.Minute))
				done := 0
				for _, step := range report.Steps {
					if step.State == jobs.StepDone {
						done++
					}
				}
				if report.StopReason != c.stop || done != c.done || err == nil ||
					!strings.HasPrefix(err.Error(), c.err) ||
					strings.Contains(err.Error(), "\n") || report.Err != err {
					t.Errorf("stop %q after %d steps: %v", report.StopReason, done, err)
				}
				if p, ok := errors.AsType[*jobs.PanicError](err); ok && !strings.Contains(p.Stack, "pipeline_test.go") {
					t.Errorf("the stack is %s", p.Stack)
				}
				if asked, ok := errors.AsType[*mutex.FinishRequestError](err); ok != (c.stop == jobs.StopRequested) {
					t.Errorf("asked: %v", asked)
				}
				if last := report.Steps[2]; !c.last && last.State != jobs.StepNotRun {
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

func TestPipelineWithoutItsLockRunsNothing(t *testing.T) {
	inMemory(t, func(t *testing.T, s *locktest.Server, locks *mutex.Client) {
		s.Hold("deploy")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		report, err := jobs.Pipeline(ctx, locks, "deploy",
			[]jobs.Step{{"one", func(context.Context) error { t.Error("it ran"); return nil }}})
		if _, isHeld := errors.AsType[*mutex.HeldError](err); !isHeld || report.StopReason != jobs.StopNotLocked ||
			report.Duration == 0 || report.Steps[0].State != jobs.StepNotRun {
			t.Errorf("%v: %s", err, report)
		}
	})
}
