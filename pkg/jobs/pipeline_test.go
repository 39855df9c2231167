package mutex_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/etcdtest"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

// sleeping is a step that takes so long, or until its context ends.
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
	bubble(t, func(t *testing.T, f *fake, locks *mutex.Client) {
		f.latency = time.Millisecond
		var seen []string
		look := func(ctx context.Context) error {
			doc := f.record(t, "deploy")
			seen = append(seen, doc.Alive.Progress)
			if d := time.Until(doc.AutoUnlockAt).Round(time.Second); d != 3*time.Minute {
				t.Errorf("the auto-unlock is in %v", d)
			}
			return sleeping(2 * time.Minute)(ctx)
		}
		report, err := locks.Pipeline(context.Background(), "deploy", []mutex.Step{{"fetch", look}, {"build", look},
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
		if f.record(t, "deploy").Token != 0 {
			t.Error("the lock was not given back")
		}
	})
}

func TestPipelineTellsWhyItStopped(t *testing.T) {
	broken := errors.New("the disk is full")
	ok := func(context.Context) error { return nil }
	for _, c := range []struct {
		name  string
		steps func(f *fake, cancel context.CancelCauseFunc) []mutex.Step
		stop  mutex.Stop
		done  int
		err   string
	}{
		{"a step fails", func(*fake, context.CancelCauseFunc) []mutex.Step {
			return []mutex.Step{{"one", ok}, {"two", func(context.Context) error { return broken }}, {"three", ok}}
		}, mutex.StopFailed, 1, "the disk is full"},
		{"a step panics", func(*fake, context.CancelCauseFunc) []mutex.Step {
			return []mutex.Step{{"one", func(context.Context) error { panic("oh") }}, {"two", ok}}
		}, mutex.StopPanicked, 0, "panic: oh"},
		{"the caller cancels", func(_ *fake, cancel context.CancelCauseFunc) []mutex.Step {
			return []mutex.Step{{"one", func(ctx context.Context) error {
				cancel(errors.New("the shift is over"))
				return sleeping(time.Hour)(ctx)
			}}, {"two", ok}}
		}, mutex.StopCancelled, 0, "the shift is over"},
		{"the caller cancels between steps", func(_ *fake, cancel context.CancelCauseFunc) []mutex.Step {
			return []mutex.Step{{"one", func(context.Context) error { cancel(nil); return nil }}, {"two", ok}}
		}, mutex.StopCancelled, 1, "context canceled"},
		{"somebody takes the lock away between steps", func(f *fake, _ context.CancelCauseFunc) []mutex.Step {
			return []mutex.Step{{"one", func(context.Context) error { takeAway(f, "deploy"); return nil }}, {"two", ok}}
		}, mutex.StopLost, 1, `lock "deploy" was lost: force-unlocked by ana`},
		{"somebody takes the lock away in a step", func(f *fake, _ context.CancelCauseFunc) []mutex.Step {
			return []mutex.Step{{"one", func(ctx context.Context) error {
				time.Sleep(time.Second) // until it is watched
				takeAway(f, "deploy")
				return sleeping(time.Hour)(ctx)
			}}, {"two", ok}}
		}, mutex.StopLost, 0, `lock "deploy" was lost: force-unlocked by ana`},
		{"somebody takes the lock away in the last step", func(f *fake, _ context.CancelCauseFunc) []mutex.Step {
			return []mutex.Step{{"one", ok}, {"two", func(context.Context) error { takeAway(f, "deploy"); return nil }}}
		}, mutex.StopLost, 2, `lock "deploy" was lost: force-unlocked by ana`},
		{"a step hangs for longer than the lock lives", func(*fake, context.CancelCauseFunc) []mutex.Step {
			return []mutex.Step{{"one", sleeping(time.Hour)}, {"two", ok}}
		}, mutex.StopLost, 0, `lock "deploy" may be lost: its time ran out`},
		{"etcd is away between steps", func(f *fake, _ context.CancelCauseFunc) []mutex.Step {
			return []mutex.Step{{"one", func(context.Context) error { f.set(func() { f.away = true }); return nil }},
				{"two", ok}}
		}, mutex.StopLost, 1, `lock "deploy" may be lost: its time ran out`},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubbleWith(t, mutex.Options{}, func(t *testing.T, f *fake, locks *mutex.Client) {
				ctx, cancel := context.WithCancelCause(context.Background())
				defer cancel(nil)
				report, err := locks.Pipeline(ctx, "deploy", c.steps(f, cancel), mutex.AutoUnlockAfter(3*time.Minute))
				done := 0
				for _, s := range report.Steps {
					if s.State == mutex.StepDone {
						done++
					}
				}
				if report.Stop != c.stop || done != c.done || err == nil || !strings.HasPrefix(err.Error(), c.err) ||
					strings.Contains(err.Error(), "\n") || report.Err != err {
					t.Errorf("stop %q after %d steps: %v", report.Stop, done, err)
				}
				if p, ok := errors.AsType[*mutex.PanicError](err); ok &&
					!strings.Contains(p.Stack, "pipeline_test.go") {
					t.Errorf("the stack is %s", p.Stack)
				}
				if last := report.Steps[len(report.Steps)-1]; c.done < len(report.Steps) &&
					last.State != mutex.StepNotRun {
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

// takeAway ends a hold as an operator does.
func takeAway(f *fake, lock string) {
	l, _ := metadata.NewLayout(mutex.DefaultPrefix)
	f.mu.Lock()
	defer f.mu.Unlock()
	uuid := string(f.keys[l.Field(lock, metadata.FieldUUID)].Value)
	f.apply(&heldTxn{thenOps: []clientv3.Op{
		clientv3.OpDelete(l.Record(lock), clientv3.WithPrefix()),
		clientv3.OpPut(l.History(uuid),
			metadata.Marshal(metadata.Ending{Lock: lock, UUID: uuid, Ended: metadata.EndedForced, By: "ana",
				Why: "it hung"})),
	}})
}

func TestPipelineThatGetsNoLockRunsNothing(t *testing.T) {
	etcd := etcdtest.Start(t).Client(t)
	locks := newClient(t, etcd)
	l := take(t, locks, "deploy")
	ctx := untilThen(t, func() bool { return queued(etcd, layout(t), "deploy") })
	report, err := locks.Pipeline(ctx, "deploy",
		[]mutex.Step{{"one", func(context.Context) error { t.Error("it ran"); return nil }}})
	if _, isHeld := errors.AsType[*mutex.HeldError](err); !isHeld || report.Stop != mutex.StopNotLocked ||
		report.Took == 0 || report.Steps[0].State != mutex.StepNotRun {
		t.Errorf("%v: %s", err, report)
	}
	l.Unlock()
}

func TestPipelinesThatCanNotBeAreRefusedBeforeEtcdIsAsked(t *testing.T) {
	// without any connection: a request would panic
	locks, err := mutex.New(clientv3.NewCtxClient(context.Background()), mutex.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ok := func(context.Context) error { return nil }
	for _, c := range []struct {
		name  string
		lock  string
		steps []mutex.Step
		want  string
	}{
		{"no steps", "a", nil, `pipeline "a": there are no steps`},
		{"a step without a name", "a", []mutex.Step{{"one", ok}, {"", ok}}, `pipeline "a": step 2 has no name`},
		{"a step without anything to run", "a", []mutex.Step{{"one", nil}},
			`pipeline "a": step "one" has nothing to run`},
		{"no lock", "", []mutex.Step{{"one", ok}}, "the lock name is empty"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := locks.Pipeline(context.Background(), c.lock, c.steps); err == nil ||
				!strings.Contains(err.Error(), c.want) {
				t.Errorf("got  %v\nwant %s", err, c.want)
			}
		})
	}
}
