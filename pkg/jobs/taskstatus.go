package jobs

import (
	"context"
	"time"

	"github.com/clustermutex/unlocker/internal/etcdretry"
	"github.com/clustermutex/unlocker/internal/locktxn"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// TaskStatus is the state of a task, as of one read.
type TaskStatus struct {
	Name      string
	State     string
	From      string // the state that the last worker captured it from
	Attempts  int    // how often it was captured without success
	Data      string // the caller's, for workers
	Note      string // of the last worker
	By        string // who changed it last
	AddedAt   time.Time
	ChangedAt time.Time // when the state changed

	Running   bool // a worker holds it
	Stuck     bool // it is in progress, but its worker is gone
	Exhausted bool // it is not captured any more, because it reached MaxAttempts

	doc           protocol.Task
	created, seen int64 // revisions of its key
	value         string
}

// Get reads one task. If there is none of that name, the State is empty.
func (s *Tasks) Get(ctx context.Context, task string) (TaskStatus, error) {
	if err := s.check(task, ""); err != nil {
		return TaskStatus{}, err
	}
	r, err := s.commit(ctx, locktxn.ReadTask(s.layout, s.name, task))
	if err != nil {
		return TaskStatus{}, s.explain("read", task, err)
	}
	return s.one(task, r), nil
}

// List reads all tasks of the set, sorted by name.
func (s *Tasks) List(ctx context.Context) (all []TaskStatus, err error) {
	err = s.pages(ctx, func(page []TaskStatus) bool { all = append(all, page...); return true })
	if err != nil {
		return nil, s.explain("list", "", err)
	}
	return all, nil
}

// pageTasks is how many tasks are read at once.
const pageTasks = 500

// pages reads the set page by page, until each returns false.
func (s *Tasks) pages(ctx context.Context, each func([]TaskStatus) (more bool)) error {
	for from := ""; ; {
		r, err := s.commit(ctx, locktxn.ReadTasks(s.layout, s.name, from, pageTasks))
		if err != nil {
			return err
		}
		running := map[string]bool{}
		for _, kv := range r.Keys(1).Kvs {
			if key := s.layout.Parse(string(kv.Key)); key.Kind == protocol.KindField && key.ID == metadata.FieldUUID {
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

// one returns the task that a transaction read together with the record of its lock.
func (s *Tasks) one(task string, r etcdretry.Answer) TaskStatus {
	for _, kv := range r.Keys(0).Kvs {
		return s.status(task, kv.CreateRevision, kv.ModRevision, kv.Value, s.holder(task, r).Token != 0)
	}
	return TaskStatus{Name: task}
}

// holder returns the record of the task's lock.
func (s *Tasks) holder(task string, r etcdretry.Answer) metadata.Document {
	return metadata.Decode(s.LockName(task), locktxn.Fields(s.layout, r.Keys(1)))
}

// status reads a task. One that cannot be read has no state that anybody captures.
func (s *Tasks) status(task string, created, seen int64, value []byte, running bool) TaskStatus {
	t, err := protocol.Unmarshal[protocol.Task](value)
	if err != nil {
		t.State = "unreadable"
		t.Note = err.Error()
	}
	now := TaskStatus{
		Name: task, State: t.State, From: t.From, Attempts: t.Attempts, Data: t.Data, Note: t.Note, By: t.By,
		AddedAt: t.AddedAt.Time, ChangedAt: t.ChangedAt.Time, Running: running,
		doc: t, created: created, seen: seen, value: string(value),
	}
	now.Stuck = t.State == StateInProgress && !running
	now.Exhausted = s.opts.MaxAttempts > 0 && t.Attempts >= s.opts.MaxAttempts && !running && s.from(now) != ""
	return now
}

// from returns the state that a task can be captured from, empty if it cannot.
func (s *Tasks) from(now TaskStatus) string {
	from := now.State
	if from == StateInProgress {
		from = now.From
	}
	if _, ok := s.opts.Transitions[from]; !ok || now.Running {
		return ""
	}
	return from
}
