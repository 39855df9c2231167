package lockstore

import (
	"context"
	"errors"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/locktxn"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// ChangedError means that an operator's action was not done because the lock is no longer as the operator saw it. It
// wraps [metadata.ErrChanged].
type ChangedError struct {
	Current metadata.FullRecord // the lock's record now; without Fields if there is none
}

// Error names the current holder.
func (e *ChangedError) Error() string {
	if e.Current.Token == 0 {
		return metadata.ErrChanged.Error() + ": nobody holds the lock now"
	}
	return fmt.Sprintf("%v: the lock is now held by %q on %q, token %d", metadata.ErrChanged, e.Current.Owner,
		e.Current.Hostname, e.Current.Token)
}

// Unwrap returns [metadata.ErrChanged].
func (e *ChangedError) Unwrap() error { return metadata.ErrChanged }

// forceUnlock removes the hold that an operator saw, whatever its deadlines.
func (s *Store) forceUnlock(ctx context.Context, r lockrecord.Removal, a protocol.Action) error {
	removal, err := s.prepareRemoval(ctx, r)
	if err != nil {
		return err
	}
	hold := s.holdTarget(r.Record, func(now *metadata.Record) bool {
		return !r.IfUnchanged || now.Revision == r.Record.Revision
	})
	commit := func(ctx context.Context) (*clientv3.TxnResponse, error) { return s.commitForced(ctx, removal, a) }
	if err = s.performAudited(ctx, a, hold, commit); locktxn.IsNoSpace(err) {
		return s.forceUnlockUnrecorded(ctx, removal, a, hold)
	}
	return err
}

// forceUnlockUnrecorded removes the hold without history and audit. Its effect looks like a release by the holder.
func (s *Store) forceUnlockUnrecorded(ctx context.Context, r *locktxn.Removal, a protocol.Action, hold target) error {
	s.log.Warn().Str("lock", a.Lock).Str("uuid", a.UUID).Int64("token", a.Token).
		Str("actor", a.Actor).Str("source", a.Source).
		Str("holder", a.Holder).Str("reason", a.Reason).Str("ticket", a.Ticket).
		Msg("etcd is out of space: a lock is removed by force, without history and audit")
	if s.unrecorded != nil {
		s.unrecorded(a)
	}
	resp, err := locktxn.ForceUnlockUnrecorded(s.layout, r).Commit(ctx, s.etcd)
	switch {
	case locktxn.IsRefused(err):
		return err
	case err != nil:
		return &unknownError{err}
	case !resp.Succeeded: // it was over, perhaps because the first request was applied all the same
		return s.recheckAction(ctx, a, hold, nil)
	}
	return nil
}

func (s *Store) commitForced(ctx context.Context, r *locktxn.Removal,
	a protocol.Action) (*clientv3.TxnResponse, error) {
	return s.history.commitWithLease(ctx, 1, func(lease clientv3.LeaseID) (*clientv3.TxnResponse, error) {
		r.HistoryLease = lease
		renew, err := s.grantDelays(ctx, removal{Removal: r})
		if err != nil {
			return nil, err
		}
		defer renew(ctx)
		return s.commitAudited(ctx, a, func(audit clientv3.Op) locktxn.Txn {
			r.Audit = &audit
			return locktxn.ForceUnlock(s.layout, r)
		})
	})
}

// unknownError is the error of a request whose outcome is unknown.
type unknownError struct{ error }

func (e *unknownError) Error() string {
	return "outcome unknown, read the lock again: " + e.error.Error()
}
func (e *unknownError) Unwrap() error { return e.error }

// Is reports whether target is [metadata.ErrOutcomeUnknown].
func (e *unknownError) Is(target error) bool { return target == metadata.ErrOutcomeUnknown }

// errNotSent means that a transaction was not sent, because its keys need a lease and etcd granted none.
var errNotSent = errors.New("no lease for the keys that go with it")
