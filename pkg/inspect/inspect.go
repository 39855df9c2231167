package inspect

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"reflect"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/lockstore"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// Options are the optional settings of a [Inspector].
type Options struct {
	Prefix string // where the locks live in etcd; mutex.DefaultPrefix when empty

	// Logger logs what is recorded nowhere else: a force unlock in an etcd that is out of space. nil logs nothing.
	Logger *slog.Logger
}

// Inspector reads and force-unlocks the locks below one prefix. It keeps nothing in memory, and is safe for concurrent
// use.
type Inspector struct {
	locks *lockstore.Store
}

// New returns an inspector of the locks below the prefix in etcd. It sends etcd nothing. The etcd client stays the
// caller's, and can be one that package mutex uses, too.
func New(etcd *clientv3.Client, o Options) (*Inspector, error) {
	if etcd == nil {
		return nil, errors.New("inspect: no etcd client was given")
	}
	if o.Prefix == "" {
		o.Prefix = protocol.DefaultPrefix
	}
	layout, err := protocol.NewLayout(o.Prefix)
	if err != nil {
		return nil, fmt.Errorf("inspect: %w", err)
	}
	unrecorded := lockstore.WithUnrecorded(func(a protocol.Action) { warn(o.Logger, a) })
	return &Inspector{lockstore.New(etcd, layout, unrecorded)}, nil
}

// List yields the record of every hold whose lock's name begins with prefix, in the order of etcd's keys, all as of one
// revision. An empty prefix means all locks. Every value is read once, and a record is yielded while the next ones
// arrive, so the locks need not fit into memory. To stop early, break.
//
// An error is the last thing that is yielded, with a nil record: the list is incomplete then. etcd fails a list whose
// revision it compacts meanwhile, so do not spend minutes in the loop.
//
// A record with the Token 0 is what is left of one: nobody holds that lock.
func (i *Inspector) List(ctx context.Context, prefix string) iter.Seq2[*metadata.Record, error] {
	return func(yield func(*metadata.Record, error) bool) {
		_, err := i.locks.Records(ctx, prefix, func(r *metadata.Record) bool { return yield(r, nil) })
		if err != nil {
			yield(nil, fmt.Errorf("inspect: %w", err))
		}
	}
}

// State is one lock at one revision of etcd.
type State struct {
	Name string

	// Holders are the records of all holders, the oldest first: none if the lock is free, one of a plain lock.
	Holders  []metadata.Document
	Waiters  []metadata.Waiter // the next one first
	Delays   []metadata.Delay  // lock delays, which keep others from following a hold that was ended
	Revision int64
}

// Holder returns the oldest holder, nil if nobody holds the lock.
func (s *State) Holder() *metadata.Document {
	if len(s.Holders) == 0 {
		return nil
	}
	return &s.Holders[0]
}

// Get reads one lock. That nobody holds it is no error. The waiters for a share, such as "pool#2", are those for its
// whole lock.
func (i *Inspector) Get(ctx context.Context, name string) (*State, error) {
	if err := metadata.CheckName(name); err != nil {
		return nil, fmt.Errorf("inspect: %w", err)
	}
	look, err := i.locks.Look(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("inspect: %w", err)
	}
	state := &State{Name: name, Waiters: look.Waiters, Delays: look.Delays, Revision: look.Revision}
	if look.Whole.Token != 0 {
		state.Holders = append(state.Holders, look.Whole)
	}
	state.Holders = append(state.Holders, look.Shares...)
	return state, nil
}

// Watch yields the lock as it is now, and again each time that its holders, waiters or delays have changed, until ctx
// ends or the loop breaks. It yields states and not events: a loop that is slow misses what came and went, never the
// last state. An interrupted or compacted watch is made again, and the lock read again.
//
// An error, with a nil state, says that the lock could not be read, because etcd did not answer or refused. Watch keeps
// trying: the next state, even if it is the same, says that it could. Only a bad name ends it.
func (i *Inspector) Watch(ctx context.Context, name string) iter.Seq2[*State, error] {
	return func(yield func(*State, error) bool) {
		if err := metadata.CheckName(name); err != nil {
			yield(nil, fmt.Errorf("inspect: %w", err))
			return
		}
		var last *State
		read := func() (enough bool) {
			now, err := i.Get(ctx, name)
			switch {
			case ctx.Err() != nil:
				return true
			case err != nil:
				last = nil
				return !yield(nil, err)
			case now.same(last):
				return false
			}
			last = now
			return !yield(now, nil)
		}
		_ = i.locks.WatchLock(ctx, name, read) // it ends with ctx or with the loop: both are the caller's
	}
}

// same reports whether two states differ by nothing but the revision at which they were read.
func (s *State) same(other *State) bool {
	if other == nil {
		return false
	}
	then := *other
	then.Revision = s.Revision
	return reflect.DeepEqual(s, &then)
}
