package jobs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/locktxn"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

// Task is a task that this worker holds until it calls Finish, FinishAndRemove or Release, or loses the task. It is
// safe for concurrent use.
type Task struct {
	set     *Tasks
	name    string
	lock    *mutex.Lock
	created int64

	mu          sync.Mutex
	doc         protocol.Task // as it stands in etcd; only its Data changes
	modRevision int64         // mod revision
	ended       time.Time     // when it was first ended: a repetition has the same bytes
}

// Take takes at most limit tasks, each for this worker alone: those in a state that a transition leads out of, and
// those that are stuck. It does not wait: there may be fewer, or none. The tasks that were taken before an error are
// returned with it.
func (s *Tasks) Take(ctx context.Context, limit int) (taken []*Task, err error) {
	if limit < 1 {
		return nil, s.explain("take", "", fmt.Errorf("the limit is %d: it must be at least 1", limit))
	}
	var failed error
	err = s.pages(ctx, func(page []TaskStatus) bool {
		// concurrent workers then try different tasks first
		rand.Shuffle(len(page), func(i, j int) { page[i], page[j] = page[j], page[i] })
		for _, now := range page {
			if s.takableFrom(now) == "" || now.Exhausted {
				continue
			}
			t, err := s.takeOne(ctx, now)
			if err != nil {
				failed = err
				return false
			}
			if t != nil {
				taken = append(taken, t)
			}
			if len(taken) == limit {
				return false
			}
		}
		return true
	})
	return taken, s.explain("take", "", errors.Join(failed, err))
}

// takeOne takes one task if it has not changed since it was read. Both results are nil if another worker was quicker.
func (s *Tasks) takeOne(ctx context.Context, now TaskStatus) (*Task, error) {
	doc := now.doc
	doc.From = s.takableFrom(now)
	doc.State = StateInProgress
	doc.Attempts++
	doc.By = s.opts.Worker
	doc.ChangedAt = metadata.Time{Time: s.now()}
	key := s.layout.Task(s.name, now.Name)
	l, err := s.locks.TryLock(ctx, s.LockName(now.Name), slices.Concat(s.opts.LockOptions, []mutex.Option{
		mutex.Attribute("task_attempt", doc.Attempts), mutex.Attribute("task_from", doc.From),
		s.locks.Internals().WithDocuments(locktxn.NewDocuments(key)),
		mutex.If(clientv3.Compare(clientv3.ModRevision(key), "=", now.modRevision)),
		mutex.Then(clientv3.OpPut(key, protocol.Marshal(doc))),
	})...)
	switch {
	case errors.Is(err, mutex.ErrHeld), errors.Is(err, mutex.ErrCondition):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return &Task{set: s, name: now.Name, lock: l, created: now.created, doc: doc, modRevision: l.Token()}, nil
}

// Name returns the name of the task.
func (t *Task) Name() string { return t.name }

// PreviousState returns the state that the task was taken from; for a stuck task, the state before it was in progress.
func (t *Task) PreviousState() string { return t.doc.From }

// Attempt returns the number of this attempt: how often the task has been taken without success, including this time.
func (t *Task) Attempt() int { return t.doc.Attempts }

// Data returns what [Tasks.Add] or the last [Task.Save] wrote, by this worker or an earlier one.
func (t *Task) Data() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.doc.Data
}

// Lock returns the lock under which this worker holds the task. Do not unlock it: the task would be stuck.
func (t *Task) Lock() *mutex.Lock { return t.lock }

// Context returns a context that ends when the task is lost, finished or released, see [mutex.Lock.Context].
func (t *Task) Context() context.Context { return t.lock.Context() }

// Token returns the fencing token of this worker's hold, see [mutex.Lock.Token].
func (t *Task) Token() int64 { return t.lock.Token() }

// Alive reports progress, see [mutex.Lock.Alive].
func (t *Task) Alive(ctx context.Context, progress ...string) error {
	return t.lock.Alive(ctx, progress...)
}

// FinishRequested returns a channel that is closed when the worker is asked to give up this task early, see
// [mutex.Lock.FinishRequested]. The request concerns this task alone; it does not keep [Tasks.Take] from taking others.
func (t *Task) FinishRequested() <-chan struct{} { return t.lock.FinishRequested() }

// Finish puts the task into a state that a transition leads to, with a note for operators, and releases its lock, in
// one transaction. If this worker has lost the task, the error is a [*mutex.LostError] and nothing is written. After a
// [metadata.ErrOutcomeUnknown] call it again with the same arguments.
func (t *Task) Finish(state, note string) error {
	if from := t.PreviousState(); !slices.Contains(t.set.opts.Transitions[from], state) {
		return t.set.explain("finish", t.name, fmt.Errorf("no transition leads from state %q to %q", from, state))
	}
	return t.end("finish", func(doc *protocol.Task) {
		doc.State = state
		doc.Note = note
		if !slices.Contains(t.set.opts.FailureStates, state) {
			doc.Attempts = 0
		}
	})
}

// Release puts the task back into the state it was taken from, without counting the attempt: for a worker that stops.
func (t *Task) Release() error {
	return t.end("release", func(doc *protocol.Task) {
		doc.State = doc.From
		doc.Attempts--
	})
}

// FinishAndRemove finishes the task and removes it from the set.
func (t *Task) FinishAndRemove() error { return t.end("finish", nil) }

// end changes the task, or removes it if change is nil, and releases the lock.
func (t *Task) end(verb string, change func(*protocol.Task)) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	key := t.set.layout.Task(t.set.name, t.name)
	write := clientv3.OpDelete(key)
	if change != nil {
		if t.ended.IsZero() {
			t.ended = t.set.now()
		}
		doc := t.doc
		doc.ChangedAt = metadata.Time{Time: t.ended}
		change(&doc)
		write = clientv3.OpPut(key, protocol.Marshal(doc))
	}
	err := t.lock.UnlockWith([]clientv3.Op{write}, clientv3.Compare(clientv3.CreateRevision(key), "=", t.created))
	if errors.Is(err, mutex.ErrCondition) { // its key was deleted by hand, despite the lock
		err = errors.Join(ErrNoTask, t.lock.Unlock())
	}
	return t.set.explain(verb, t.name, err)
}

// Save replaces the data of the task, for the next worker in case this one does not finish. It works only while the
// task is held.
func (t *Task) Save(ctx context.Context, data string) error {
	if err := t.set.check(t.name, data); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	doc := t.doc
	doc.Data = data
	err := t.save(ctx, protocol.Marshal(doc))
	if err == nil {
		t.doc.Data = data
	}
	return t.set.explain("save", t.name, err)
}

func (t *Task) save(ctx context.Context, value string) error {
	s := t.set
	for range 3 {
		r, err := s.send(ctx, locktxn.SaveTask(s.layout, s.name, t.name, t.lock.Guard(), t.modRevision, value))
		if err != nil {
			return err
		}
		if r.Succeeded {
			t.modRevision = r.Header.Revision
			return nil
		}
		now := s.taskOf(t.name, r)
		switch {
		case s.holder(t.name, r).Token != t.lock.Token():
			return cmp.Or(t.lock.Alive(ctx), mutex.ErrNotHeld) // the former says how it was lost
		case now.modRevision == 0 || now.created != t.created:
			return ErrNoTask
		}
		t.modRevision = now.modRevision // an earlier save whose answer was lost, or this one
		if now.value == value {
			return nil
		}
	}
	return errors.New("another process writes it despite the lock")
}
