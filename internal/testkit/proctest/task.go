package proctest

import (
	"context"
	"testing"
	"time"
)

// Task is a program's function that runs in the test's process.
type Task struct {
	cancel context.CancelFunc
	done   chan struct{}
	err    error
	waited bool
}

// Go runs a function until the test ends. An error that Wait has not returned fails the test.
func Go(t testing.TB, run func(context.Context) error) *Task {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	task := &Task{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(task.done)
		task.err = run(ctx)
	}()
	t.Cleanup(func() {
		if !task.waited {
			task.Stop(t)
		}
	})
	return task
}

// Stop ends the program and fails the test if it returns an error.
func (k *Task) Stop(t testing.TB) {
	t.Helper()
	k.cancel()
	if err := k.Wait(t); err != nil {
		t.Errorf("the program ended with: %v", err)
	}
}

// Done is closed when the program has ended.
func (k *Task) Done() <-chan struct{} { return k.done }

// Wait waits until the program ends and returns its error.
func (k *Task) Wait(t testing.TB) error {
	t.Helper()
	defer k.cancel()
	k.waited = true
	select {
	case <-k.done:
	case <-time.After(Timeout):
		t.Fatalf("the program is still running after %v", Timeout)
	}
	return k.err
}
