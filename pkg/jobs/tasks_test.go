package jobs_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/pkg/jobs"
	"github.com/clustermutex/unlocker/pkg/locktest"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

func TestTaskGoesFromNewToDone(t *testing.T) {
	etcd := locktest.NewInMemory(t)
	s := set(t, etcd, jobs.TaskOptions{Worker: "worker 1"})
	add(t, s, "a/1", "the data")
	one := capture(t, s, 5)
	if len(one) != 1 {
		t.Fatalf("%d captured", len(one))
	}
	task := one[0]
	if task.Name() != "a/1" || task.Data() != "the data" || task.From() != "new" || task.Attempt() != 1 ||
		task.Token() == 0 {
		t.Errorf("%+v", task)
	}
	now := get(t, s, "a/1")
	if now.State != "in_progress" || !now.Running || now.Stuck || now.By != "worker 1" || now.Attempts != 1 {
		t.Errorf("while a worker has it: %+v", now)
	}
	if doc := etcd.AssertHeld("invoices/a/1"); doc.UUID != task.Lock().UUID() ||
		fmt.Sprint(doc.Attributes) != "map[task_attempt:1 task_from:new]" {
		t.Errorf("its lock is %+v", doc.Record)
	}
	if again := capture(t, s, 5); len(again) != 0 {
		t.Error("two have the task")
	}
	if err := task.Alive(t.Context(), "half"); err != nil {
		t.Error(err)
	}
	if err := task.Finish("done", "sent"); err != nil {
		t.Fatal(err)
	}
	now = get(t, s, "a/1")
	if now.State != "done" || now.From != "new" || now.Running || now.Attempts != 0 || now.Note != "sent" ||
		now.Data != "the data" || now.AddedAt.IsZero() {
		t.Errorf("afterwards: %+v", now)
	}
	etcd.AssertFree("invoices/a/1")
	if cause := context.Cause(task.Context()); cause != mutex.ErrUnlocked {
		t.Errorf("the context ended with %v", cause)
	}
	if again := capture(t, s, 5); len(again) != 0 {
		t.Error("a task that is done was captured")
	}
}

func TestEachTaskIsCapturedByOneWorkerOnce(t *testing.T) {
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
			for captured := capture(t, tasks, 1+i); len(captured) > 0; captured = capture(t, tasks, 1+i) {
				for _, task := range captured {
					mu.Lock()
					times[task.Name()]++
					mu.Unlock()
					if err := task.Finish("done", ""); err != nil {
						t.Error(err)
					}
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

func TestTaskThatFailedIsTriedAgainUpToTheMaximum(t *testing.T) {
	etcd := locktest.NewInMemory(t)
	s := set(t, etcd, jobs.TaskOptions{MaxAttempts: 3})
	add(t, s, "1", "")
	for i := range 3 {
		captured := capture(t, s, 1)
		if len(captured) != 1 || captured[0].Attempt() != i+1 {
			t.Fatalf("attempt %d: %+v", i+1, captured)
		}
		if err := captured[0].Finish("failed", "no connection"); err != nil {
			t.Fatal(err)
		}
	}
	now := get(t, s, "1")
	if len(capture(t, s, 1)) != 0 || !now.Exhausted || now.State != "failed" || now.Note != "no connection" ||
		now.Attempts != 3 {
		t.Errorf("after the last attempt: %+v", now)
	}
	if err := s.Reset(t.Context(), "1", "new"); err != nil {
		t.Fatal(err)
	}
	captured := capture(t, s, 1)
	if len(captured) != 1 || captured[0].Attempt() != 1 || captured[0].From() != "new" {
		t.Fatalf("after the reset: %+v", captured)
	}
	for _, c := range []func() error{
		func() error { return s.Reset(t.Context(), "1", "new") },
		func() error { return s.Remove(t.Context(), "1") },
	} {
		if held, isHeld := errors.AsType[*mutex.HeldError](c()); !isHeld ||
			held.Holder.UUID != captured[0].Lock().UUID() {
			t.Errorf("while a worker has it: %v", held)
		}
	}
	if err := captured[0].Release(); err != nil {
		t.Fatal(err)
	}
	if now := get(t, s, "1"); now.State != "new" || now.Attempts != 0 {
		t.Errorf("after the release: %+v", now)
	}
	if err := s.Remove(t.Context(), "1"); err != nil {
		t.Error(err)
	}
	for what, err := range map[string]error{"remove": s.Remove(t.Context(), "1"),
		"reset": s.Reset(t.Context(), "1", "new")} {
		if !errors.Is(err, jobs.ErrNoTask) {
			t.Errorf("%s a task that is none: %v", what, err)
		}
	}
}

func TestTransitionsAreThoseOfTheCaller(t *testing.T) {
	etcd := locktest.NewInMemory(t)
	s := set(t, etcd, jobs.TaskOptions{
		Initial:     "uploaded",
		Transitions: map[string][]string{"uploaded": {"encoded", "broken"}, "encoded": {"published"}},
		Failures:    []string{"broken"}, MaxAttempts: 2,
	})
	add(t, s, "film", "")
	for _, step := range []struct{ from, wrong, to string }{{"uploaded", "published", "encoded"},
		{"encoded", "broken", "published"}} {
		task := capture(t, s, 1)[0]
		if task.From() != step.from || task.Attempt() != 1 {
			t.Errorf("captured from %s, attempt %d", task.From(), task.Attempt())
		}
		err := task.Finish(step.wrong, "")
		if want := fmt.Sprintf(`finish task "film" of "invoices": no transition leads from state %q to %q`, step.from,
			step.wrong); err == nil || err.Error() != want {
			t.Errorf("got  %v\nwant %s", err, want)
		}
		if err := task.Finish(step.to, ""); err != nil {
			t.Error(err)
		}
	}
	if captured := capture(t, s, 1); len(captured) != 0 {
		t.Error("a task in a final state was captured")
	}
}

func TestSavedDataIsThereForTheNextWorker(t *testing.T) {
	etcd := locktest.NewInMemory(t)
	s := set(t, etcd, jobs.TaskOptions{})
	add(t, s, "1", "page 0")
	task := capture(t, s, 1)[0]
	for i := range 3 {
		if err := task.Save(t.Context(), fmt.Sprint("page ", i+1)); err != nil {
			t.Fatal(err)
		}
	}
	etcd.Expire("invoices/1")
	if err := task.Save(t.Context(), "page 9"); !errors.Is(err, mutex.ErrNotHeld) {
		t.Errorf("a worker that lost the task saves: %v", err)
	}
	next := capture(t, s, 1)[0]
	if next.Data() != "page 3" || next.Attempt() != 2 || next.From() != "new" {
		t.Errorf("the next worker has %q, attempt %d from %s", next.Data(), next.Attempt(), next.From())
	}
	if err := next.FinishAndRemove(); err != nil {
		t.Error(err)
	}
	if now := get(t, s, "1"); now.State != "" {
		t.Errorf("it is still there: %+v", now)
	}
}

func TestTaskIsSafeForConcurrentUse(t *testing.T) {
	s := set(t, locktest.NewInMemory(t), jobs.TaskOptions{})
	add(t, s, "1", "")
	task := capture(t, s, 1)[0]
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			if err := task.Save(t.Context(), "part"); err != nil {
				t.Error(err)
			}
		})
		all.Go(func() {
			if task.From() != jobs.StateNew || task.Attempt() != 1 || task.Finish("nowhere", "") == nil {
				t.Errorf("from %s, attempt %d", task.From(), task.Attempt())
			}
		})
	}
	all.Wait()
	if err := task.Finish(jobs.StateDone, ""); err != nil {
		t.Error(err)
	}
}

func TestTaskWhoseKeySomebodyDeletedIsNotMadeAgain(t *testing.T) {
	etcd := locktest.NewInMemory(t)
	s := set(t, etcd, jobs.TaskOptions{})
	add(t, s, "1", "")
	task := capture(t, s, 1)[0]
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
		t.Errorf("it is there again: %+v", now)
	}
}

func TestListSaysWhatBecameOfEachTask(t *testing.T) {
	etcd := locktest.NewInMemory(t)
	s := set(t, etcd, jobs.TaskOptions{MaxAttempts: 1})
	other, err := jobs.NewTasks(client(etcd, time.Now), "invoices 2", jobs.TaskOptions{})
	if err != nil {
		t.Fatal(err)
	}
	add(t, other, "of another set", "")
	for _, name := range []string{"failed", "stuck", "running"} {
		add(t, s, name, "")
		task := capture(t, s, 1)[0]
		switch name {
		case "failed":
			task.Finish("failed", "")
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
	if captured := capture(t, s, 10); len(captured) != 1 || captured[0].Name() != "new" {
		t.Errorf("captured %+v", captured)
	}
}

func TestLargeSetsAreReadInPages(t *testing.T) {
	etcd := locktest.NewInMemory(t)
	s := set(t, etcd, jobs.TaskOptions{})
	var ops []clientv3.Op
	for i := range 1201 {
		state := "done"
		if i == 1200 {
			state = "new"
		}
		ops = append(ops, clientv3.OpPut(layout(t).Task("invoices", fmt.Sprintf("%04d", i)),
			protocol.Marshal(protocol.Task{State: state})))
		if len(ops) == 100 || i == 1200 {
			if _, err := etcd.Etcd().Txn(t.Context()).Then(ops...).Commit(); err != nil {
				t.Fatal(err)
			}
			ops = nil
		}
	}
	if all := list(t, s); len(all) != 1201 || all[1200].Name != "1200" {
		t.Errorf("%d tasks", len(all))
	}
	if captured := capture(t, s, 10); len(captured) != 1 || captured[0].Name() != "1200" {
		t.Errorf("captured %+v", captured)
	}
}

func TestAddIsDoneOnceAndLeavesWhatIsThere(t *testing.T) {
	etcd := locktest.NewInMemory(t)
	s := set(t, etcd, jobs.TaskOptions{})
	add(t, s, "1", "x")
	capture(t, s, 1)
	if added, err := s.Add(t.Context(), "1", "y"); added || err != nil {
		t.Errorf("a second time: %v, %v", added, err)
	}
	if now := get(t, s, "1"); now.Data != "x" || now.State != "in_progress" {
		t.Errorf("%+v", now)
	}
	if n := etcdtest.Count(t, etcd.Etcd(), layout(t).Cancelled("")); n != 0 {
		t.Errorf("adds that were answered left %d marks", n)
	}
}

func TestWorkerIsAskedAboutOneTaskAndMayTakeOthers(t *testing.T) {
	inMemory(t, func(t *testing.T, s *locktest.Server, _ *mutex.Client) {
		tasks := set(t, s, jobs.TaskOptions{})
		add(t, tasks, "7", "")
		add(t, tasks, "8", "")
		first := capture(t, tasks, 1)[0]
		time.Sleep(time.Second)
		s.Ask(tasks.LockName(first.Name()), "ann", "I look at it")
		<-first.Asked()
		second := capture(t, tasks, 1)[0]
		time.Sleep(time.Second)
		select {
		case <-second.Asked():
			t.Error("the request is taken for another task")
		default:
		}
		for _, task := range []*jobs.Task{first, second} {
			if err := task.Release(); err != nil {
				t.Error(err)
			}
		}
	})
}
