package jobs

import (
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

// Task is a task that this worker has, until one of Finish, FinishAndRemove and Release, or until it is lost. It is
// safe for concurrent use.
type Task struct {
	set     *Tasks
	name    string
	lock    *mutex.Lock
	created int64
	from    string // the state out of which it was captured
	attempt int

	mu    sync.Mutex
	doc   protocol.Task // as it stands in etcd
	seen  int64         // mod revision
	ended time.Time     // when it was first asked to end: a repetition has the same bytes
}

// Capture takes tasks that nobody has, not more than limit, each for this worker alone: those in a state out of which a
// transition leads, and those that are stuck. It does not wait: there may be fewer, or none. Tasks that were captured
// before an error come with it.
func (s *Tasks) Capture(ctx context.Context, limit int) (captured []*Task, err error) {
	if limit < 1 {
		return nil, s.explain("capture", "", fmt.Errorf("the limit is %d, it must be at least 1", limit))
	}
	var failed error
	err = s.pages(ctx, func(page []TaskStatus) bool {
		// workers that look at once go for different ones
		rand.Shuffle(len(page), func(i, j int) { page[i], page[j] = page[j], page[i] })
		for _, now := range page {
			if s.from(now) == "" || now.Exhausted {
				continue
			}
			t, err := s.capture(ctx, now)
			if err != nil {
				failed = err
				return false
			}
			if t != nil {
				captured = append(captured, t)
			}
			if len(captured) == limit {
				return false
			}
		}
		return true
	})
	return captured, s.explain("capture", "", errors.Join(failed, err))
}

// capture takes one task if it is as it was seen. Both results are nil when another worker was quicker.
func (s *Tasks) capture(ctx context.Context, now TaskStatus) (*Task, error) {
	doc := now.doc
	doc.From = s.from(now)
	doc.State = StateInProgress
	doc.Attempts++
	doc.By = s.opts.Worker
	doc.ChangedAt = metadata.Time{Time: s.now()}
	key := s.layout.Task(s.name, now.Name)
	l, err := s.locks.TryLock(ctx, s.LockName(now.Name), slices.Concat(s.opts.Lock, []mutex.Option{
		mutex.Attribute("task_attempt", doc.Attempts), mutex.Attribute("task_from", doc.From),
		mutex.Documents(locktxn.NewDocuments(key)),
		mutex.If(clientv3.Compare(clientv3.ModRevision(key), "=", now.seen)),
		mutex.Then(clientv3.OpPut(key, protocol.Marshal(doc))),
	})...)
	_, isHeld := errors.AsType[*mutex.HeldError](err)
	switch {
	case isHeld || errors.Is(err, mutex.ErrCondition):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return &Task{set: s, name: now.Name, lock: l, created: now.created, from: doc.From, attempt: doc.Attempts, doc: doc,
		seen: l.Token()}, nil
}

// Name is the name of the task.
func (t *Task) Name() string { return t.name }

// From is the state out of which it was captured; of a task that was stuck, the one before.
func (t *Task) From() string { return t.from }

// Attempt is how often it was captured without success, this time included.
func (t *Task) Attempt() int { return t.attempt }

// Data is what [Tasks.Add] or the last [Task.Save] wrote, of this worker or an earlier one.
func (t *Task) Data() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.doc.Data
}

// Lock is the lock under which this worker has the task. Do not unlock it: then the task would be stuck.
func (t *Task) Lock() *mutex.Lock { return t.lock }

// Context ends when the task is lost, finished or released, see [mutex.Lock.Context].
func (t *Task) Context() context.Context { return t.lock.Context() }

// Token is the fencing token of this capture, see [mutex.Lock.Token].
func (t *Task) Token() int64 { return t.lock.Token() }

// Alive says that the work makes progress, see [mutex.Lock.Alive].
func (t *Task) Alive(ctx context.Context, progress ...string) error {
	return t.lock.Alive(ctx, progress...)
}

// Finish puts the task into a state to which a transition leads, with a note for people, and gives its lock back, in
// one transaction. A worker that lost the task is refused with a [*mutex.LostError]: its state is another worker's
// business now. After a [mutex.ErrUnknown] call it again with the same arguments.
func (t *Task) Finish(state, note string) error {
	if !slices.Contains(t.set.opts.Transitions[t.from], state) {
		return t.set.explain("finish", t.name, fmt.Errorf("no transition leads from state %q to %q", t.from, state))
	}
	return t.end("finish", func(doc *protocol.Task) {
		doc.State = state
		doc.Note = note
		if !slices.Contains(t.set.opts.Failures, state) {
			doc.Attempts = 0
		}
	})
}

// Release puts the task back as it was captured, without counting the attempt: for a worker that has to stop.
func (t *Task) Release() error {
	return t.end("release", func(doc *protocol.Task) {
		doc.State = doc.From
		doc.Attempts--
	})
}

// FinishAndRemove is Finish of a task that nobody needs any more.
func (t *Task) FinishAndRemove() error { return t.end("finish", nil) }

// end writes what becomes of the task, nil for nothing, and gives the lock back.
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
	if errors.Is(err, mutex.ErrCondition) { // somebody deleted its key by hand, in spite of the lock
		err = errors.Join(ErrNoTask, t.lock.Unlock())
	}
	return t.set.explain(verb, t.name, err)
}

// Save writes other data into the task, for the next worker in case this one does not get to the end. It works only
// while the task is held, and nothing that this worker still has under way overwrites it later.
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
		t.doc = doc
	}
	return t.set.explain("save", t.name, err)
}

func (t *Task) save(ctx context.Context, value string) error {
	s := t.set
	for range 3 {
		r, err := s.commit(ctx, locktxn.SaveTask(s.layout, s.name, t.name, t.lock.Guard(), t.seen, value))
		if err != nil {
			return err
		}
		if r.Succeeded {
			t.seen = r.Header.Revision
			return nil
		}
		now := s.one(t.name, r)
		switch {
		case s.holder(t.name, r).Token != t.lock.Token():
			return t.lost(ctx)
		case now.seen == 0 || now.created != t.created:
			return ErrNoTask
		}
		t.seen = now.seen // an earlier save whose answer was lost, or this one
		if now.value == value {
			return nil
		}
	}
	return errors.New("somebody else writes it in spite of the lock")
}

// lost is how the task was lost.
func (t *Task) lost(ctx context.Context) error {
	if err := t.lock.Alive(ctx); err != nil {
		return err
	}
	return mutex.ErrNotHeld
}
