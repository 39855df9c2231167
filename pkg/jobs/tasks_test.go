package jobs_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
	"github.com/clustermutex/unlocker/pkg/jobs"
	"github.com/clustermutex/unlocker/pkg/locktest"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

func TestTaskGoesFromNewToDone(t *testing.T) {
	etcd, s := tasks(t, jobs.TaskOptions{Worker: "worker 1"})
	task := one(t, s, 1, "new")
	now := get(t, s, "1")
	if task.Name() != "1" || task.Data() != "the data" || task.Token() == 0 || now.State != "in_progress" ||
		!now.Running || now.Stuck || now.ChangedBy != "worker 1" || now.Attempts != 1 {
		t.Errorf("while a worker has it: %+v, %+v", task, now)
	}
	if doc := etcd.AssertHeld("invoices/1"); doc.UUID != task.Lock().UUID() ||
		fmt.Sprint(doc.Attributes) != "map[task_attempt:1 task_from:new]" {
		t.Errorf("its lock is %+v", doc.Record)
	}
	if again := take(t, s, 5); len(again) != 0 {
		t.Error("two have the task")
	}
	proctest.Must(t, task.Alive(t.Context(), "half"))
	finish(t, task, "done")
	now = get(t, s, "1")
	if now.State != "done" || now.PreviousState != "new" || now.Running || now.Attempts != 0 || now.Note != "a note" ||
		now.Data != "the data" || now.AddedAt.IsZero() {
		t.Errorf("afterwards: %+v", now)
	}
	etcd.AssertFree("invoices/1")
	if cause := context.Cause(task.Context()); cause != mutex.ErrUnlocked {
		t.Errorf("the context ended with %v", cause)
	}
	if again := take(t, s, 5); len(again) != 0 {
		t.Error("a task that is done was taken")
	}
}

func TestEachTaskIsTakenByOneWorkerOnce(t *testing.T) {
	s := locktest.NewInMemory(t)
	const workers, all = 8, 80
	first := set(t, s, jobs.TaskOptions{})
	for i := range all {
		add(t, first, fmt.Sprint(i), "")
	}
	var mu sync.Mutex
	times := map[string]int{}
	var working sync.WaitGroup
	for i := range workers {
		tasks := set(t, s, jobs.TaskOptions{})
		working.Go(func() {
			for taken := take(t, tasks, 1+i); len(taken) > 0; taken = take(t, tasks, 1+i) {
				for _, task := range taken {
					mu.Lock()
					times[task.Name()]++
					mu.Unlock()
					finish(t, task, "done")
				}
			}
		})
	}
	working.Wait()
	for _, now := range list(t, first) {
		if times[now.Name] != 1 || now.State != "done" || now.Attempts != 0 {
			t.Errorf("done %d times: %+v", times[now.Name], now)
		}
	}
}

func TestFailedTaskIsRetriedUpToTheMaximum(t *testing.T) {
	_, s := tasks(t, jobs.TaskOptions{MaxAttempts: 3})
	for i, from := range []string{"new", "failed", "failed"} {
		finish(t, one(t, s, i+1, from), "failed")
	}
	if now := get(t, s, "1"); len(take(t, s, 1)) != 0 || !now.Exhausted || now.State != "failed" ||
		now.Note != "a note" || now.Attempts != 3 {
		t.Errorf("after the last attempt: %+v", now)
	}
	reset := func() error { return s.Reset(t.Context(), "1", "new") }
	remove := func() error { return s.Remove(t.Context(), "1") }
	proctest.Must(t, reset())
	task := one(t, s, 1, "new")
	for what, err := range map[string]error{"reset": reset(), "remove": remove()} {
		if held, isHeld := errors.AsType[*mutex.HeldError](err); !isHeld || held.Holder.UUID != task.Lock().UUID() {
			t.Errorf("%s while a worker has it: %v", what, err)
		}
	}
	proctest.Must(t, task.Release())
	if now := get(t, s, "1"); now.State != "new" || now.Attempts != 0 {
		t.Errorf("after the release: %+v", now)
	}
	proctest.Must(t, remove())
	for what, err := range map[string]error{"reset": reset(), "remove": remove()} {
		if !errors.Is(err, jobs.ErrNoTask) {
			t.Errorf("%s a task that is none: %v", what, err)
		}
	}
}

func TestTransitionsUseTheCallersContext(t *testing.T) {
	_, s := tasks(t, jobs.TaskOptions{
		InitialState:  "uploaded",
		Transitions:   map[string][]string{"uploaded": {"encoded", "broken"}, "encoded": {"published"}},
		FailureStates: []string{"broken"}, MaxAttempts: 2,
	})
	for _, step := range []struct{ from, wrong, to string }{{"uploaded", "published", "encoded"},
		{"encoded", "broken", "published"}} {
		task := one(t, s, 1, step.from)
		err := task.Finish(step.wrong, "")
		if want := fmt.Sprintf(`finish task "1" of "invoices": no transition leads from state %q to %q`, step.from,
			step.wrong); err == nil || err.Error() != want {
			t.Errorf("got  %v\nwant %s", err, want)
		}
		finish(t, task, step.to)
	}
	if taken := take(t, s, 1); len(taken) != 0 {
		t.Error("a task in a final state was taken")
	}
}

func TestTaskIsSafeForConcurrentUse(t *testing.T) {
	_, s := tasks(t, jobs.TaskOptions{})
	task := one(t, s, 1, "new")
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			if err := task.Save(t.Context(), "part"); err != nil {
				t.Error(err)
			}
		})
		all.Go(func() {
			if task.PreviousState() != jobs.StateNew || task.Attempt() != 1 || task.Finish("nowhere", "") == nil {
				t.Errorf("from %s, attempt %d", task.PreviousState(), task.Attempt())
			}
		})
	}
	all.Wait()
	finish(t, task, jobs.StateDone)
}

func TestDeletedTaskIsNotRecreated(t *testing.T) {
	etcd, s := tasks(t, jobs.TaskOptions{})
	task := one(t, s, 1, "new")
	etcd.Etcd().Delete(t.Context(), layout(t).Task("invoices", "1"))
	if err := task.Save(t.Context(), "x"); !errors.Is(err, jobs.ErrNoTask) {
		t.Errorf("save: %v", err)
	}
	add(t, s, "1", "another of this name")
	if err := task.Save(t.Context(), "x"); !errors.Is(err, jobs.ErrNoTask) {
		t.Errorf("save over another: %v", err)
	}
	etcd.Etcd().Delete(t.Context(), layout(t).Task("invoices", "1"))
	if err := task.Finish("done", ""); !errors.Is(err, jobs.ErrNoTask) {
		t.Errorf("finish: %v", err)
	}
	etcd.AssertFree("invoices/1")
	if now := get(t, s, "1"); now.State != "" {
		t.Errorf("the task reappeared: %+v", now)
	}
}

func TestListHasTheStateOfEachTask(t *testing.T) {
	etcd := locktest.NewInMemory(t)
	s := set(t, etcd, jobs.TaskOptions{MaxAttempts: 1})
	other, err := jobs.NewTasks(client(etcd, time.Now), "invoices 2", jobs.TaskOptions{})
	proctest.Must(t, err)
	add(t, other, "of another set", "")
	for _, name := range []string{"failed", "stuck", "running"} {
		add(t, s, name, "")
		task := one(t, s, 1, "new")
		switch name {
		case "failed":
			finish(t, task, "failed")
		case "stuck":
			etcd.Expire("invoices/stuck")
		}
	}
	add(t, s, "new", "")
	etcd.Etcd().Put(t.Context(), layout(t).Task("invoices", "unreadable"), "soon")
	var got []string
	for _, now := range list(t, s) {
		got = append(got, fmt.Sprintf("%s:%s,%v,%v,%v", now.Name, now.State, now.Running, now.Stuck, now.Exhausted))
	}
	want := "failed:failed,false,false,true new:new,false,false,false running:in_progress,true,false,false " +
		"stuck:in_progress,false,true,true unreadable:unreadable,false,false,false"
	if strings.Join(got, " ") != want {
		t.Errorf("got  %s\nwant %s", strings.Join(got, " "), want)
	}
	if task := one(t, s, 1, "new"); task.Name() != "new" {
		t.Errorf("taken %s", task.Name())
	}
}

func TestLargeSetsAreReadInPages(t *testing.T) {
	etcd := locktest.NewInMemory(t)
	s := set(t, etcd, jobs.TaskOptions{})
	put := func(i int, state string) clientv3.Op {
		return clientv3.OpPut(layout(t).Task("invoices", fmt.Sprintf("%04d", i)),
			protocol.Marshal(protocol.Task{State: state}))
	}
	for from := 0; from < 1200; from += 100 {
		var ops []clientv3.Op
		for i := range 100 {
			ops = append(ops, put(from+i, "done"))
		}
		_, err := etcd.Etcd().Txn(t.Context()).Then(ops...).Commit()
		proctest.Must(t, err)
	}
	add(t, s, "1200", "")
	if all := list(t, s); len(all) != 1201 || all[1200].Name != "1200" {
		t.Errorf("%d tasks", len(all))
	}
	if task := one(t, s, 1, "new"); task.Name() != "1200" {
		t.Errorf("taken %s", task.Name())
	}
}

func TestAddIsIdempotent(t *testing.T) {
	etcd, s := tasks(t, jobs.TaskOptions{})
	one(t, s, 1, "new")
	if added, err := s.Add(t.Context(), "1", "y"); added || err != nil {
		t.Errorf("a second time: %v, %v", added, err)
	}
	if now := get(t, s, "1"); now.Data != "the data" || now.State != "in_progress" {
		t.Errorf("%+v", now)
	}
	if n := etcdtest.Count(t, etcd.Etcd(), layout(t).Cancelled("")); n != 0 {
		t.Errorf("adds that were answered left %d marks", n)
	}
}

func TestWorkerAskedToFinishOneTaskMayTakeOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		etcd, s := tasks(t, jobs.TaskOptions{})
		add(t, s, "2", "")
		first := take(t, s, 1)[0]
		time.Sleep(time.Second)
		etcd.AskToFinish(s.LockName(first.Name()), "ann", "I look at it")
		<-first.FinishRequested()
		second := one(t, s, 1, "new")
		time.Sleep(time.Second)
		select {
		case <-second.FinishRequested():
			t.Error("the request is taken for another task")
		default:
		}
		proctest.Must(t, errors.Join(first.Release(), second.Release()))
	})
}

func TestTaskOfADeadWorkerIsTakenAgainAfterItsAutoUnlock(t *testing.T) {
	s, lives := tasks(t, jobs.TaskOptions{MaxAttempts: 2})
	dies := one(t, set(t, s, jobs.TaskOptions{Worker: "the one that dies"}), 1, "new")
	for i := range 3 {
		proctest.Must(t, dies.Save(t.Context(), fmt.Sprint("page ", i+1)))
	}
	if taken := take(t, lives, 1); len(taken) != 0 {
		t.Fatal("taken before the auto-unlock")
	}
	s.Expire("invoices/1")
	if now := get(t, lives, "1"); !now.Stuck || now.ChangedBy != "the one that dies" {
		t.Errorf("after the auto-unlock: %+v", now)
	}
	task := one(t, lives, 2, "new")
	if task.Data() != "page 3" {
		t.Errorf("it has %q", task.Data())
	}
	proctest.Must(t, task.FinishAndRemove())
	if now := get(t, lives, "1"); now.State != "" {
		t.Errorf("it is still there: %+v", now)
	}
}

func TestLateWorkerIsRefused(t *testing.T) {
	s, tasks := tasks(t, jobs.TaskOptions{})
	late := one(t, tasks, 1, "new")
	s.Expire("invoices/1") // while it stands still
	var next *jobs.Task
	for _, step := range []string{"stuck", "taken again"} {
		if step == "taken again" {
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

func TestLostAnswersRepeatNothing(t *testing.T) {
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
				taken := take(t, tasks, 5)
				if len(taken) != 5 {
					t.Fatalf("%d taken", len(taken))
				}
				for _, task := range taken {
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
	proctest.Must(t, one(t, tasks, 1, "new").FinishAndRemove())
	if r, err := late(); err != nil || r.Succeeded {
		t.Errorf("the late add: %v, %v", r, err)
	}
	if all := list(t, tasks); len(all) > 0 {
		t.Errorf("it is to be done again: %+v", all)
	}
}
