package jobs_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/pkg/jobs"
	"github.com/clustermutex/unlocker/pkg/locktest"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

func TestTaskOfADeadWorkerIsCapturedAgainAfterItsAutoUnlock(t *testing.T) {
	s, lives := tasks(t, jobs.TaskOptions{MaxAttempts: 2})
	dies := one(t, set(t, s, jobs.TaskOptions{Worker: "the one that dies"}), 1, "new")
	for i := range 3 {
		if err := dies.Save(t.Context(), fmt.Sprint("page ", i+1)); err != nil {
			t.Fatal(err)
		}
	}
	if captured := capture(t, lives, 1); len(captured) != 0 {
		t.Fatal("captured before the auto-unlock")
	}
	s.Expire("invoices/1")
	if now := get(t, lives, "1"); !now.Stuck || now.By != "the one that dies" {
		t.Errorf("after the auto-unlock: %+v", now)
	}
	task := one(t, lives, 2, "new")
	if task.Data() != "page 3" {
		t.Errorf("it has %q", task.Data())
	}
	if err := task.FinishAndRemove(); err != nil {
		t.Error(err)
	}
	if now := get(t, lives, "1"); now.State != "" {
		t.Errorf("it is still there: %+v", now)
	}
}

func TestLateWorkerIsRefused(t *testing.T) {
	s, tasks := tasks(t, jobs.TaskOptions{})
	late := one(t, tasks, 1, "new")
	s.Expire("invoices/1") // while it stands still
	var next *jobs.Task
	for _, step := range []string{"stuck", "captured again"} {
		if step == "captured again" {
			if next = one(t, set(t, s, jobs.TaskOptions{}), 2, "new"); next.Token() <= late.Token() {
				t.Errorf("token %d after %d", next.Token(), late.Token())
			}
		}
		before := get(t, tasks, "1")
		for what, err := range map[string]error{"save": late.Save(t.Context(), "late"),
			"finish": late.Finish("failed", "late"), "release": late.Release(), "remove": late.FinishAndRemove()} {
			lost, isLost := errors.AsType[*mutex.LostError](err)
			if !isLost || lost.Ending == nil || lost.Ending.By != "locktest" {
				t.Errorf("%s while it is %s: %v", what, step, err)
			}
		}
		if now := get(t, tasks, "1"); now != before {
			t.Errorf("while it is %s, the late worker wrote %+v", step, now)
		}
	}
	finish(t, next, "done")
}

func TestNothingIsDoneTwiceWhenAnswersAreLost(t *testing.T) {
	for name, lost := range map[string]func(n int64) bool{
		"every second answer": func(n int64) bool { return n%2 != 0 },
		"every third":         func(n int64) bool { return n%3 == 0 },
	} {
		t.Run(name, func(t *testing.T) {
			inMemory(t, func(t *testing.T, s *locktest.Server, _ *mutex.Client) {
				var n atomic.Int64
				disturb(s, func(send commit) (*clientv3.TxnResponse, error) {
					r, err := send()
					if lost(n.Add(1)) {
						return nil, context.DeadlineExceeded
					}
					return r, err
				})
				tasks := set(t, s, jobs.TaskOptions{})
				for i := range 5 {
					add(t, tasks, fmt.Sprint(i), "")
				}
				captured := capture(t, tasks, 5)
				if len(captured) != 5 {
					t.Fatalf("%d captured", len(captured))
				}
				for _, task := range captured {
					if task.Attempt() != 1 {
						t.Errorf("%s: attempt %d", task.Name(), task.Attempt())
					}
					for i := range 3 {
						if err := task.Save(t.Context(), fmt.Sprint("part ", i)); err != nil {
							t.Errorf("save: %v", err)
						}
					}
					finish(t, task, "done")
				}
				for _, now := range list(t, tasks) {
					if now.State != "done" || now.Data != "part 2" || now.Running {
						t.Errorf("%+v", now)
					}
				}
				time.Sleep(time.Minute)
			})
		})
	}
}

// An add that arrives late must not bring back a task that was done meanwhile.
func TestLateAddIsRefused(t *testing.T) {
	s := locktest.NewInMemory(t)
	var late commit
	disturb(s, func(send commit) (*clientv3.TxnResponse, error) {
		if late == nil {
			late = send
			return nil, context.DeadlineExceeded
		}
		return send()
	})
	tasks := set(t, s, jobs.TaskOptions{})
	add(t, tasks, "1", "")
	if err := one(t, tasks, 1, "new").FinishAndRemove(); err != nil {
		t.Fatal(err)
	}
	if r, err := late(); err != nil || r.Succeeded {
		t.Errorf("the late add: %v, %v", r, err)
	}
	if all := list(t, tasks); len(all) > 0 {
		t.Errorf("it is to be done again: %+v", all)
	}
}
