package jobs_test

import (
	"context"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/testkit/proctest"
	"github.com/clustermutex/unlocker/pkg/jobs"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

func TestBadInputIsRefusedBeforeSending(t *testing.T) {
	// without any connection: a request would panic
	locks, err := mutex.New(clientv3.NewCtxClient(context.Background()), mutex.Options{})
	proctest.Must(t, err)
	ctx := context.Background()
	ok := func(context.Context) error { return nil }
	once := func(every time.Duration, opts ...jobs.Option) error {
		_, err := jobs.OncePer(ctx, locks, "a", every, ok, opts...)
		return err
	}
	tasks := func(name string, o jobs.TaskOptions) error { _, err := jobs.NewTasks(locks, name, o); return err }
	moves := func(to ...string) jobs.TaskOptions {
		return jobs.TaskOptions{Transitions: map[string][]string{"new": to}}
	}
	pipeline := func(locks *mutex.Client, lock string, steps ...jobs.Step) error {
		_, err := jobs.Pipeline(ctx, locks, lock, steps)
		return err
	}
	s, err := jobs.NewTasks(locks, "a", jobs.TaskOptions{})
	proctest.Must(t, err)
	_, noLocks := jobs.NewTasks(nil, "a", jobs.TaskOptions{})
	_, noClient := jobs.OncePer(ctx, nil, "a", time.Hour, ok)
	_, noJob := jobs.OncePer(ctx, locks, "", time.Hour, ok)
	_, noFunction := jobs.OncePer(ctx, locks, "a", time.Hour, nil)
	_, noTick := jobs.OnceAt(ctx, locks, "a", time.Time{}, ok)
	_, odd := jobs.TryLockAt(ctx, locks, "a", time.Now(), jobs.PeriodOffset(1))
	_, noTask := s.Add(ctx, "", "")
	_, tooLong := s.Add(ctx, "x", strings.Repeat("x", 64<<10+1))
	_, noLimit := s.Take(ctx, 0)
	for _, c := range []struct {
		want string
		err  error
	}{
		{`once "": the lock name is empty`, noJob},
		{`once "a": no lock client was given`, noClient},
		{"there is no function to run", noFunction},
		{"the period is 1ms: it must be between 1s and 87600h0m0s", once(time.Millisecond)},
		{"it must be between", once(1 << 62)},
		{"PeriodOffset is -1ns: it must not be negative", once(time.Hour, jobs.PeriodOffset(-1))},
		{"PeriodOffset is 1h0m0s: it must be shorter than the period of 1h0m0s",
			once(time.Hour, jobs.PeriodOffset(time.Hour))},
		{`once "a": the tick is 0001-01-01T00:00:00Z: it must be between 1970 and 2261`, noTick},
		{"PeriodOffset goes with OncePer", odd},
		{"a job runs under a plain lock", once(time.Hour, jobs.LockOptions(mutex.Semaphore(3)))},
		{"AutoUnlockAfter is 0s: it must be positive", once(time.Hour, jobs.LockOptions(mutex.AutoUnlockAfter(0)))},

		{`pipeline "a": no lock client was given`, pipeline(nil, "a", jobs.Step{Name: "one", Run: ok})},
		{`pipeline "a": there are no steps`, pipeline(locks, "a")},
		{`pipeline "a": step 2 has no name`, pipeline(locks, "a", jobs.Step{Name: "one", Run: ok}, jobs.Step{Run: ok})},
		{`pipeline "a": step "one" has nothing to run`, pipeline(locks, "a", jobs.Step{Name: "one"})},
		{"the lock name is empty", pipeline(locks, "", jobs.Step{Name: "one", Run: ok})},

		{"tasks: no lock client was given", noLocks},
		{"tasks: the name of the set of tasks is empty", tasks("", jobs.TaskOptions{})},
		{`tasks: the set of tasks "a/b" has a slash in its name`, tasks("a/b", jobs.TaskOptions{})},
		{`tasks "a": MaxAttempts is -1: it must not be negative`, tasks("a", jobs.TaskOptions{MaxAttempts: -1})},
		{"a job runs under a plain lock",
			tasks("a", jobs.TaskOptions{LockOptions: []mutex.Option{mutex.Semaphore(2)}})},
		{`tasks "a": no transition leads out of the initial state "x"`,
			tasks("a", jobs.TaskOptions{InitialState: "x"})},
		{`tasks "a": the transition out of state "new" leads nowhere`, tasks("a", moves())},
		{`tasks "a": no transition leads to the failure "x"`,
			tasks("a", jobs.TaskOptions{FailureStates: []string{"x"}})},
		{`tasks "a": a state of the transitions is empty`, tasks("a", moves(""))},
		{`tasks "a": the state "in_progress" is reserved for tasks that a worker holds`,
			tasks("a", moves("in_progress"))},
		{`tasks "a": the name of the task is empty`, noTask},
		{`write task "x" of "a": its data has 65537 bytes, at most 65536 are allowed`, tooLong},
		{`take tasks of "a": the limit is 0: it must be at least 1`, noLimit},
		{`reset task "x" of "a": no transition leads out of state "done"`, s.Reset(ctx, "x", "done")},
		{`tasks "a": the lock name contains a control character`, s.Remove(ctx, "a\n")},
	} {
		if c.err == nil || !strings.Contains(c.err.Error(), c.want) {
			t.Errorf("got  %v\nwant %s", c.err, c.want)
		}
	}
}
