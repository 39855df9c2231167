package inspect

import (
	"cmp"
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

// Options are the optional settings of an [Inspector].
type Options struct {
	Prefix string // where the locks live in etcd; mutex.DefaultPrefix when empty

	// Logger logs a force unlock in an etcd that is out of space, which is recorded nowhere else. nil logs nothing.
	Logger *slog.Logger
}

// Inspector reads and force-unlocks the locks below one prefix. It keeps no state and is safe for concurrent use.
type Inspector struct {
	locks *lockstore.Store
}

// New returns an inspector of the locks below the prefix in etcd. It sends etcd nothing. The etcd client stays the
// caller's, and can be one that package mutex uses, too.
func New(etcd *clientv3.Client, o Options) (*Inspector, error) {
	if etcd == nil {
		return nil, errors.New("inspect: no etcd client was given")
	}
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	layout, err := protocol.NewLayout(cmp.Or(o.Prefix, protocol.DefaultPrefix))
	if err != nil {
		return nil, fmt.Errorf("inspect: %w", err)
	}
	unrecorded := lockstore.WithUnrecorded(func(a protocol.Action) { logUnrecorded(o.Logger, a) })
	return &Inspector{lockstore.New(etcd, layout, unrecorded)}, nil
}

// List yields the record of every hold whose lock name begins with prefix, in the order of etcd's keys, all at one
// revision, as they arrive. An empty prefix means all locks.
//
// An error, with a nil record, is yielded last: the list is then incomplete. The list fails if etcd compacts its
// revision meanwhile, so do not spend minutes in the loop.
//
// A record whose Token is 0 is a remnant: nobody holds that lock.
func (i *Inspector) List(ctx context.Context, prefix string) iter.Seq2[*metadata.Record, error] {
	return func(yield func(*metadata.Record, error) bool) {
		err := i.locks.ListRecords(ctx, prefix, func(r *metadata.Record) bool { return yield(r, nil) })
		if err != nil {
			yield(nil, fmt.Errorf("inspect: %w", err))
		}
	}
}

// LockInfo describes a lock, its holders and its waiters at one revision of etcd.
type LockInfo struct {
	Name string // of the lock, as asked for

	// Holders are the records of all holders, the oldest first: none if the lock is free, one of a plain lock.
	Holders  []metadata.FullRecord
	Waiters  []metadata.Waiter    // the next one first
	Delays   []metadata.LockDelay // lock delays, which keep clients from taking the lock
	Revision int64                // of etcd, at the read
}

// Holder returns the oldest holder, nil if nobody holds the lock.
func (l *LockInfo) Holder() *metadata.FullRecord {
	if len(l.Holders) == 0 {
		return nil
	}
	return &l.Holders[0]
}

// Get reads one lock. A lock that nobody holds is not an error. The waiters for a share, such as "pool#2", are those
// for its whole lock.
func (i *Inspector) Get(ctx context.Context, name string) (*LockInfo, error) {
	if err := metadata.CheckName(name); err != nil {
		return nil, fmt.Errorf("inspect: %w", err)
	}
	look, err := i.locks.ReadLock(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("inspect: %w", err)
	}
	info := &LockInfo{Name: name, Waiters: look.Waiters, Delays: look.Delays, Revision: look.Revision}
	if look.Record.Token != 0 {
		info.Holders = append(info.Holders, look.Record)
	}
	info.Holders = append(info.Holders, look.Shares...)
	return info, nil
}

// Watch yields the lock as it is now, and again whenever its holders, waiters or delays change, until ctx ends or the
// loop breaks. It yields states, not events: a slow loop may miss intermediate states, but never the last one.
//
// An error, with a nil LockInfo, means that the lock could not be read. Watch keeps trying and yields the next state
// that it can read, even if it has not changed. Only an invalid name ends the loop.
func (i *Inspector) Watch(ctx context.Context, name string) iter.Seq2[*LockInfo, error] {
	return func(yield func(*LockInfo, error) bool) {
		if err := metadata.CheckName(name); err != nil {
			yield(nil, fmt.Errorf("inspect: %w", err))
			return
		}
		var last *LockInfo
		read := func() (enough bool) {
			now, err := i.Get(ctx, name)
			switch {
			case ctx.Err() != nil:
				return true
			case err != nil:
				last = nil
				return !yield(nil, err)
			case now.sameAs(last):
				return false
			}
			last = now
			return !yield(now, nil)
		}
		_ = i.locks.WatchLock(ctx, name, read) // it ends with ctx or with the loop, both by the caller's choice
	}
}

// sameAs reports whether the two differ at most in the revision at which they were read.
func (l *LockInfo) sameAs(other *LockInfo) bool {
	if other == nil {
		return false
	}
	then := *other
	then.Revision = l.Revision
	return reflect.DeepEqual(l, &then)
}
