package jobs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/clustermutex/unlocker/internal/etcdretry"
	"github.com/clustermutex/unlocker/internal/locktxn"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

// StateInProgress is the state of a task that a worker holds, and of one that is stuck because its worker is gone.
const StateInProgress = protocol.StateInProgress

// The states of tasks unless [TaskOptions] name others.
const (
	StateNew    = "new"
	StateDone   = "done"
	StateFailed = "failed"
)

// TaskOptions are what all tasks of a set have in common. The zero TaskOptions are usable.
type TaskOptions struct {
	// Initial is the state of a task that is added; "new" when empty.
	Initial string

	// Transitions maps each state that tasks are captured from to the states in which they may finish. If nil, "new"
	// and "failed" tasks are captured and become "done" or "failed".
	Transitions map[string][]string

	// Failures are the states in which an attempt counts as failed; "failed" if nil. Any other state resets the count
	// of attempts.
	Failures []string

	// MaxAttempts is how often a task may be captured without success; 0 for no limit.
	MaxAttempts int

	// Lock are the options of the locks of the tasks, such as [mutex.AlertAfter] and [mutex.AutoUnlockAfter].
	Lock []mutex.Option

	// Worker names this worker in the tasks that it changes; the host name and the process id when empty.
	Worker string
}

// Tasks is a set of tasks. It is safe for concurrent use.
type Tasks struct {
	etcd   *etcdretry.Client
	locks  *mutex.Client
	about  mutex.Options
	layout protocol.Layout
	name   string
	opts   TaskOptions
}

// NewTasks returns the set of tasks with this name, which must not contain a slash, in the etcd of the locks. It sends
// no request.
func NewTasks(locks *mutex.Client, set string, o TaskOptions) (*Tasks, error) {
	layout, err := layoutOf(locks)
	if err == nil {
		err = protocol.CheckTask(set, "x")
	}
	if err != nil {
		return nil, fmt.Errorf("tasks: %w", err)
	}
	about := locks.Options()
	if o.Worker == "" {
		o.Worker = fmt.Sprintf("%s (pid %d)", about.Hostname, os.Getpid())
	}
	if err := o.complete(); err != nil {
		return nil, fmt.Errorf("tasks %q: %w", set, err)
	}
	return &Tasks{etcd: locks.Etcd(), locks: locks, about: about, layout: layout, name: set, opts: o}, nil
}

// complete fills in the defaults and refuses contradictions.
func (o *TaskOptions) complete() error {
	if o.Initial == "" {
		o.Initial = StateNew
	}
	if o.Transitions == nil {
		o.Transitions = map[string][]string{StateNew: {StateDone, StateFailed}, StateFailed: {StateDone, StateFailed}}
	}
	if o.Failures == nil {
		o.Failures = []string{StateFailed}
	}
	return o.check()
}

func (o *TaskOptions) check() error {
	if o.MaxAttempts < 0 {
		return fmt.Errorf("the maximum of attempts is %d, it must not be negative", o.MaxAttempts)
	}
	if _, ok := o.Transitions[o.Initial]; !ok {
		return fmt.Errorf("no transition leads out of the initial state %q", o.Initial)
	}
	for _, from := range slices.Sorted(maps.Keys(o.Transitions)) {
		if len(o.Transitions[from]) == 0 {
			return fmt.Errorf("the transition out of state %q leads nowhere", from)
		}
		for _, state := range append([]string{from}, o.Transitions[from]...) {
			switch {
			case state == "":
				return errors.New("a state of the transitions is empty")
			case state == StateInProgress:
				return fmt.Errorf("the state %q is that of every task while a worker holds it", StateInProgress)
			}
		}
	}
	return nil
}

// LockName returns the name of the lock under which a worker holds a task.
func (s *Tasks) LockName(task string) string { return protocol.TaskLock(s.name, task) }

// ErrNoTask means that there is no such task.
var ErrNoTask = errors.New("there is no such task")

// commit sends a transaction that is harmless to repeat, until there is an answer.
func (s *Tasks) commit(ctx context.Context, txn locktxn.Txn) (etcdretry.Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, s.about.RequestTimeout)
	defer cancel()
	return s.etcd.Send(ctx, txn)
}

func (s *Tasks) check(task, data string) error {
	if err := protocol.CheckTask(s.name, task); err != nil {
		return fmt.Errorf("tasks %q: %w", s.name, err)
	}
	if len(data) > protocol.MaxDataBytes {
		return s.explain("write", task, fmt.Errorf("its data has %d bytes, at most %d are allowed", len(data),
			protocol.MaxDataBytes))
	}
	return nil
}

func (s *Tasks) now() time.Time { return s.about.Now().Truncate(time.Millisecond) }

// explain says what was tried.
func (s *Tasks) explain(verb, task string, err error) error {
	switch {
	case err == nil:
		return nil
	case task == "":
		return fmt.Errorf("%s tasks of %q: %w", verb, s.name, err)
	}
	return fmt.Errorf("%s task %q of %q: %w", verb, task, s.name, err)
}
