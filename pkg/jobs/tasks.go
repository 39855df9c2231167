package jobs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/google/uuid"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/locktxn"
	"github.com/clustermutex/unlocker/internal/locktxn/etcdretry"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

// StateInProgress is the state of a task that a worker holds, and of a stuck one, whose worker is gone.
const StateInProgress = protocol.StateInProgress

// The states of tasks unless [TaskOptions] name others.
const (
	StateNew    = "new"
	StateDone   = "done"
	StateFailed = "failed"
)

// TaskOptions apply to all tasks of a set. The zero TaskOptions are usable.
type TaskOptions struct {
	// InitialState is the state of an added task; "new" when empty.
	InitialState string

	// Transitions maps each state that tasks are taken from to the states in which they may finish. If nil, "new" and
	// "failed" tasks are taken and become "done" or "failed".
	Transitions map[string][]string

	// FailureStates are the states in which an attempt counts as failed; "failed" if nil. Any other state resets the
	// count of attempts.
	FailureStates []string

	// MaxAttempts is how often a task may be taken without success; 0 for no limit.
	MaxAttempts int

	// LockOptions are the options of the locks of the tasks, such as [mutex.AlertAfter] and [mutex.AutoUnlockAfter].
	LockOptions []mutex.Option

	// Worker names this worker in the tasks that it changes; the host name and the process id when empty.
	Worker string
}

// Tasks is a set of tasks. It is safe for concurrent use.
type Tasks struct {
	client
	name string
	opts TaskOptions
}

// NewTasks returns the set of tasks with this name, which must not contain a slash, in the etcd of the locks. It sends
// no request.
func NewTasks(locks *mutex.Client, set string, o TaskOptions) (*Tasks, error) {
	c, err := newClient(locks)
	if err == nil {
		err = protocol.CheckTask(set, "x")
	}
	if err != nil {
		return nil, fmt.Errorf("tasks: %w", err)
	}
	o.Worker = cmp.Or(o.Worker, fmt.Sprintf("%s (pid %d)", c.clientOptions.Hostname, os.Getpid()))
	if err = o.complete(); err == nil {
		_, err = draftPlain(locks, protocol.TaskLock(set, "x"), o.LockOptions)
	}
	if err != nil {
		return nil, fmt.Errorf("tasks %q: %w", set, err)
	}
	return &Tasks{client: c, name: set, opts: o}, nil
}

func (o *TaskOptions) complete() error {
	o.InitialState = cmp.Or(o.InitialState, StateNew)
	if o.Transitions == nil {
		o.Transitions = map[string][]string{StateNew: {StateDone, StateFailed}, StateFailed: {StateDone, StateFailed}}
	}
	err := o.check()
	if o.FailureStates == nil {
		o.FailureStates = []string{StateFailed}
	}
	return err
}

func (o *TaskOptions) check() error {
	if o.MaxAttempts < 0 {
		return fmt.Errorf("MaxAttempts is %d: it must not be negative", o.MaxAttempts)
	}
	if _, ok := o.Transitions[o.InitialState]; !ok {
		return fmt.Errorf("no transition leads out of the initial state %q", o.InitialState)
	}
	for _, from := range slices.Sorted(maps.Keys(o.Transitions)) {
		states := append([]string{from}, o.Transitions[from]...)
		switch {
		case len(states) == 1:
			return fmt.Errorf("the transition out of state %q leads nowhere", from)
		case slices.Contains(states, ""):
			return errors.New("a state of the transitions is empty")
		case slices.Contains(states, StateInProgress):
			return fmt.Errorf("the state %q is reserved for tasks that a worker holds", StateInProgress)
		}
	}
	reached := slices.Concat(slices.Collect(maps.Values(o.Transitions))...)
	for _, state := range o.FailureStates {
		if !slices.Contains(reached, state) {
			return fmt.Errorf("no transition leads to the failure %q", state)
		}
	}
	return nil
}

// LockName returns the name of the lock under which a worker holds a task.
func (s *Tasks) LockName(task string) string { return protocol.TaskLock(s.name, task) }

// ErrNoTask means that there is no such task.
var ErrNoTask = errors.New("there is no such task")

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

// explain adds what was attempted to an error.
func (s *Tasks) explain(verb, task string, err error) error {
	switch {
	case err == nil:
		return nil
	case task == "":
		return fmt.Errorf("%s tasks of %q: %w", verb, s.name, err)
	}
	return fmt.Errorf("%s task %q of %q: %w", verb, task, s.name, err)
}

// Add adds a task in the initial state, with data for its workers: text of at most 64 KiB. It reports whether it added
// the task: an existing task of that name is not changed. After an error the task may have been added, or may yet be.
func (s *Tasks) Add(ctx context.Context, task, data string) (added bool, err error) {
	if err := s.check(task, data); err != nil {
		return false, err
	}
	now := metadata.Time{Time: s.now()}
	value := protocol.Marshal(protocol.Task{State: s.opts.InitialState, Data: data, By: s.opts.Worker, AddedAt: now,
		ChangedAt: now})
	attempt := uuid.NewString()
	r, err := s.send(ctx, locktxn.AddTask(s.layout, s.name, task, attempt, value))
	if err == nil && r.Indeterminate {
		err = s.putTombstone(ctx, task, attempt)
	}
	if err != nil {
		return false, s.explain("add", task, err)
	}
	// If an answer was lost, the existing task may be this one.
	return r.Succeeded || r.Indeterminate && slices.ContainsFunc(r.Keys(0).Kvs, func(kv *mvccpb.KeyValue) bool {
		return string(kv.Value) == value
	}), nil
}

// tombstoneTTL is how long the tombstone of an Add lasts: no request is in flight for longer.
const tombstoneTTL = 10 * time.Minute

// putTombstone prevents the commit of late requests of an Add: by then the task may be done and removed.
func (s *Tasks) putTombstone(ctx context.Context, task, attempt string) error {
	ctx, cancel := context.WithTimeout(ctx, s.clientOptions.RequestTimeout)
	defer cancel()
	lease, err := s.locks.Internals().Retry().Grant(ctx, tombstoneTTL)
	if err == nil {
		_, err = s.send(ctx, locktxn.PutTombstone(s.layout, s.LockName(task), attempt, lease))
	}
	return err
}

// Remove removes a task, whatever its state. If a worker holds it, the error is a [*mutex.HeldError].
func (s *Tasks) Remove(ctx context.Context, task string) error {
	return s.change(ctx, "remove", task, func(TaskStatus) string { return "" })
}

// Reset puts a task into this state, which a transition must lead out of, and sets its attempts to 0. If a worker holds
// the task, the error is a [*mutex.HeldError].
func (s *Tasks) Reset(ctx context.Context, task, state string) error {
	if _, ok := s.opts.Transitions[state]; !ok {
		return s.explain("reset", task, fmt.Errorf("no transition leads out of state %q", state))
	}
	return s.change(ctx, "reset", task, func(now TaskStatus) string {
		return protocol.Marshal(protocol.Task{
			State: state, Data: now.Data, Note: now.Note, By: s.opts.Worker, AddedAt: now.doc.AddedAt,
			ChangedAt: metadata.Time{Time: s.now()},
		})
	})
}

// change writes a task that no worker holds.
func (s *Tasks) change(ctx context.Context, verb, task string, value func(TaskStatus) string) error {
	if err := s.check(task, ""); err != nil {
		return err
	}
	for range 10 { // others may change it, too
		r, err := s.send(ctx, locktxn.ReadTask(s.layout, s.name, task))
		if err != nil {
			return s.explain(verb, task, err)
		}
		now := s.taskOf(task, r)
		switch {
		case now.modRevision == 0:
			return s.explain(verb, task, ErrNoTask)
		case now.Running:
			return &mutex.HeldError{Name: s.LockName(task), Holder: s.holder(task, r), At: s.now()}
		}
		r, err = s.send(ctx, locktxn.ChangeTask(s.layout, s.name, task, now.modRevision, value(now)))
		if err != nil || r.Succeeded {
			return s.explain(verb, task, err)
		}
	}
	return s.explain(verb, task, errors.New("others keep changing it"))
}

// TaskStatus is the state of a task, as of one read.
type TaskStatus struct {
	Name          string
	State         string
	PreviousState string // the state that the last worker took it from
	Attempts      int    // how often it has been taken without success
	Data          string // the caller's, for workers
	Note          string // of the last worker
	ChangedBy     string // who changed it last
	AddedAt       time.Time
	ChangedAt     time.Time // when the state changed

	Running   bool // a worker holds it
	Stuck     bool // it is in progress, but its worker is gone
	Exhausted bool // it reached MaxAttempts and is no longer taken

	doc                  protocol.Task
	created, modRevision int64 // create and mod revision of its key; 0 if there is no task
	value                string
}

// Get reads one task. If there is none of that name, the State is empty.
func (s *Tasks) Get(ctx context.Context, task string) (TaskStatus, error) {
	if err := s.check(task, ""); err != nil {
		return TaskStatus{}, err
	}
	r, err := s.send(ctx, locktxn.ReadTask(s.layout, s.name, task))
	if err != nil {
		return TaskStatus{}, s.explain("read", task, err)
	}
	return s.taskOf(task, r), nil
}

// List reads all tasks of the set, sorted by name.
func (s *Tasks) List(ctx context.Context) (all []TaskStatus, err error) {
	err = s.pages(ctx, func(page []TaskStatus) bool { all = append(all, page...); return true })
	if err != nil {
		return nil, s.explain("list", "", err)
	}
	return all, nil
}

// pageSize is how many tasks are read at once.
const pageSize = 500

// pages reads the set page by page, until each returns false.
func (s *Tasks) pages(ctx context.Context, each func([]TaskStatus) (more bool)) error {
	for from := ""; ; {
		r, err := s.send(ctx, locktxn.ReadTasks(s.layout, s.name, from, pageSize))
		if err != nil {
			return err
		}
		running := map[string]bool{}
		for _, kv := range r.Keys(1).Kvs {
			if key := s.layout.Parse(string(kv.Key)); key.Kind == protocol.KindField && key.ID == lockrecord.FieldUUID {
				running[key.Lock] = true
			}
		}
		var page []TaskStatus
		read := r.Keys(0)
		for _, kv := range read.Kvs {
			from = string(kv.Key) + "\x00"
			if key := s.layout.Parse(string(kv.Key)); key.Kind == protocol.KindTask {
				page = append(page, s.status(key.ID, kv.CreateRevision, kv.ModRevision, kv.Value, running[key.Lock]))
			}
		}
		if !each(page) || !read.More {
			return nil
		}
	}
}

// taskOf returns the task that a transaction read together with the record of its lock.
func (s *Tasks) taskOf(task string, r etcdretry.Response) TaskStatus {
	for _, kv := range r.Keys(0).Kvs {
		return s.status(task, kv.CreateRevision, kv.ModRevision, kv.Value, s.holder(task, r).Token != 0)
	}
	return TaskStatus{Name: task}
}

func (s *Tasks) holder(task string, r etcdretry.Response) metadata.FullRecord {
	return lockrecord.Decode(s.LockName(task), locktxn.Fields(s.layout, r.Keys(1)))
}

// status reads a task. One that cannot be read gets a state that no transition leads out of.
func (s *Tasks) status(task string, created, seen int64, value []byte, running bool) TaskStatus {
	t, err := protocol.Unmarshal[protocol.Task](value)
	if err != nil {
		t.State = "unreadable"
		t.Note = err.Error()
	}
	now := TaskStatus{
		Name: task, State: t.State, PreviousState: t.From, Attempts: t.Attempts, Data: t.Data, Note: t.Note,
		ChangedBy: t.By,
		AddedAt:   t.AddedAt.Time, ChangedAt: t.ChangedAt.Time, Running: running,
		doc: t, created: created, modRevision: seen, value: string(value),
	}
	now.Stuck = t.State == StateInProgress && !running
	now.Exhausted = s.opts.MaxAttempts > 0 && t.Attempts >= s.opts.MaxAttempts && !running && s.takableFrom(now) != ""
	return now
}

// takableFrom returns the state that a task can be taken from; empty if it cannot.
func (s *Tasks) takableFrom(now TaskStatus) string {
	from := now.State
	if from == StateInProgress {
		from = now.PreviousState
	}
	if _, ok := s.opts.Transitions[from]; !ok || now.Running {
		return ""
	}
	return from
}
