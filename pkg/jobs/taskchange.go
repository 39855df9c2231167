package jobs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/clustermutex/unlocker/internal/locktxn"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

// Add adds a task in the initial state, with data for its workers: text of at most 64 KiB. It reports whether it did:
// an existing task of that name stays as it is, whatever its state. After an error the task may have been added, or may
// still be.
func (s *Tasks) Add(ctx context.Context, task, data string) (added bool, err error) {
	if err := s.check(task, data); err != nil {
		return false, err
	}
	now := metadata.Time{Time: s.now()}
	value := protocol.Marshal(protocol.Task{State: s.opts.Initial, Data: data, By: s.opts.Worker, AddedAt: now,
		ChangedAt: now})
	attempt := uuid.NewString()
	r, err := s.commit(ctx, locktxn.AddTask(s.layout, s.name, task, attempt, value))
	if err == nil && r.Indeterminate {
		err = s.forbid(ctx, task, attempt)
	}
	if err != nil {
		return false, s.explain("add", task, err)
	}
	// After an answer that was lost, the task that is there may be this one.
	return r.Succeeded || r.Indeterminate && slices.ContainsFunc(r.Keys(0).Kvs, func(kv *mvccpb.KeyValue) bool {
		return string(kv.Value) == value
	}), nil
}

// forbidden is how long etcd remembers that an attempt must not be committed any more: none is under way for longer.
const forbidden = 10 * time.Minute

// forbid keeps late requests of an Add from being committed: the task may be done and removed by then.
func (s *Tasks) forbid(ctx context.Context, task, attempt string) error {
	ctx, cancel := context.WithTimeout(ctx, s.about.RequestTimeout)
	defer cancel()
	lease, err := s.etcd.Grant(ctx, forbidden)
	if err == nil {
		_, err = s.etcd.Send(ctx, locktxn.Forbid(s.layout, s.LockName(task), attempt, lease))
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
		r, err := s.commit(ctx, locktxn.ReadTask(s.layout, s.name, task))
		if err != nil {
			return s.explain(verb, task, err)
		}
		now := s.one(task, r)
		switch {
		case now.seen == 0:
			return s.explain(verb, task, ErrNoTask)
		case now.Running:
			return &mutex.HeldError{Lock: s.LockName(task), Holder: s.holder(task, r), At: s.now()}
		}
		r, err = s.commit(ctx, locktxn.ChangeTask(s.layout, s.name, task, now.seen, value(now)))
		if err != nil || r.Succeeded {
			return s.explain(verb, task, err)
		}
	}
	return s.explain(verb, task, errors.New("others keep changing it"))
}
