package tasks

import (
	"context"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/locktxn"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

const (
	// patience bounds every call, whatever its context says: etcd's client waits for ever when nobody answers.
	patience = 15 * time.Second
	// attempt is how long one request waits before it is sent again, to another member where there is one.
	attempt = 2 * time.Second
	// pageTasks is how many tasks are read at once.
	pageTasks = 500
)

// answer is what is known of a transaction.
type answer struct {
	*clientv3.TxnResponse
	repeated bool // an earlier sending may have been committed, too
}

// keys is what the operation with this number read.
func (a answer) keys(op int) *clientv3.GetResponse {
	if op >= len(a.Responses) || a.Responses[op].GetResponseRange() == nil {
		return &clientv3.GetResponse{}
	}
	return (*clientv3.GetResponse)(a.Responses[op].GetResponseRange())
}

// value is that of the one key that the operation with this number read.
func (a answer) value(op int) string {
	for _, kv := range a.keys(op).Kvs {
		return string(kv.Value)
	}
	return ""
}

// commit sends a transaction that is harmless to repeat, and repeats it until there is an answer.
func (s *Set) commit(ctx context.Context, txn locktxn.Txn) (a answer, err error) {
	a.repeated, err = s.insist(ctx, func(ctx context.Context) (err error) {
		a.TxnResponse, err = txn.Commit(ctx, s.etcd)
		return err
	})
	return a, err
}

// insist asks etcd until there is an answer. It tells whether an earlier sending stayed without one.
func (s *Set) insist(ctx context.Context, ask func(context.Context) error) (repeated bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if ctx.Err() != nil {
		return false, context.Cause(ctx)
	}
	for delay := 20 * time.Millisecond; ; delay = min(2*delay, time.Second) {
		try, done := context.WithTimeout(ctx, attempt)
		err := ask(try)
		done()
		switch {
		case err == nil:
			return repeated, nil
		case locktxn.Postponed(err):
		case locktxn.Refused(err), locktxn.NoSpace(err), s.etcd.Ctx().Err() != nil:
			return repeated, err
		default:
			repeated = true
		}
		select {
		case <-ctx.Done():
			return repeated, fmt.Errorf("etcd did not answer (%w): %w", err, context.Cause(ctx))
		case <-time.After(delay):
		}
	}
}

// forbidden is how long etcd remembers that an attempt must not be committed any more, in seconds: none is under way
// for longer.
const forbidden = 600

// forbid sees to it that no late sending of an Add is committed any more: the task may be done and removed by then.
func (s *Set) forbid(ctx context.Context, task, attempt string) error {
	var lease *clientv3.LeaseGrantResponse
	_, err := s.insist(ctx, func(ctx context.Context) (err error) {
		lease, err = s.etcd.Grant(ctx, forbidden)
		return err
	})
	if err == nil {
		_, err = s.commit(ctx, locktxn.Forbid(s.layout, s.Holder(task), attempt, lease.ID))
	}
	return err
}

// pages reads the set until each wants no more.
func (s *Set) pages(ctx context.Context, each func([]Status) (more bool)) error {
	for from := ""; ; {
		r, err := s.commit(ctx, locktxn.ReadTasks(s.layout, s.name, from, pageTasks))
		if err != nil {
			return err
		}
		running := map[string]bool{}
		for _, kv := range r.keys(1).Kvs {
			if key := s.layout.Parse(string(kv.Key)); key.Kind == metadata.KindField && key.ID == metadata.FieldUUID {
				running[key.Lock] = true
			}
		}
		var page []Status
		read := r.keys(0)
		for _, kv := range read.Kvs {
			from = string(kv.Key) + "\x00"
			if key := s.layout.Parse(string(kv.Key)); key.Kind == metadata.KindTask {
				page = append(page, s.status(key.ID, kv.CreateRevision, kv.ModRevision, kv.Value, running[key.Lock]))
			}
		}
		if !each(page) || !read.More {
			return nil
		}
	}
}

// one is the task that a transaction read together with the record of its lock.
func (s *Set) one(task string, r answer) Status {
	for _, kv := range r.keys(0).Kvs {
		return s.status(task, kv.CreateRevision, kv.ModRevision, kv.Value, s.holder(task, r).Token != 0)
	}
	return Status{Name: task}
}

// holder is the record of the task's lock.
func (s *Set) holder(task string, r answer) metadata.Document {
	return metadata.Decode(s.Holder(task), locktxn.Fields(s.layout, r.keys(1)))
}

// status reads a task. One that can not be read has no state that anybody captures.
func (s *Set) status(task string, created, seen int64, value []byte, running bool) Status {
	t, err := metadata.Unmarshal[metadata.Task](value)
	if err != nil {
		t.State = "unreadable"
		t.Note = err.Error()
	}
	now := Status{Name: task, Task: t, Running: running, created: created, seen: seen, value: string(value)}
	now.Stuck = t.State == StateInProgress && !running
	now.Exhausted = s.opts.MaxAttempts > 0 && t.Attempts >= s.opts.MaxAttempts && !running && s.from(now) != ""
	return now
}

// from is the state out of which a task that nobody has can be captured, empty where it can not.
func (s *Set) from(now Status) string {
	from := now.State
	if from == StateInProgress {
		from = now.From
	}
	if _, ok := s.opts.Transitions[from]; !ok || now.Running {
		return ""
	}
	return from
}
