package lockstore

import (
	"context"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/locktxn"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// ChangedError says that a person's removal was not done, because the lock is not as the person saw it. It wraps
// [metadata.ErrChanged].
type ChangedError struct {
	Now metadata.Document // the lock as it is; without Fields nobody holds it
}

// Error says who holds the lock now.
func (e *ChangedError) Error() string {
	if e.Now.Token == 0 {
		return metadata.ErrChanged.Error() + ": nobody holds the lock now"
	}
	return fmt.Sprintf("%v: the lock is now held by %q on %q, token %d", metadata.ErrChanged, e.Now.Owner,
		e.Now.Hostname, e.Now.Token)
}

// Unwrap returns [metadata.ErrChanged].
func (e *ChangedError) Unwrap() error { return metadata.ErrChanged }

// ForceUnlock removes the hold that a person looked at, whatever its deadlines, and records the action. It is a
// [*ChangedError] when that hold is over. When the answer of etcd gets lost it looks what became of the hold and never
// tries again by itself; where that leaves a doubt the error says so.
//
// An etcd without space takes no records. Then the hold is removed all the same, because a full etcd is no reason to
// keep people from working, and the log line is the record.
func (s *Store) ForceUnlock(ctx context.Context, r metadata.Removal, a protocol.Action) error {
	err := s.forceUnlock(ctx, r, a)
	if err != nil {
		return fmt.Errorf("force-unlock %q: %w", r.Record.Name, err)
	}
	return nil
}

func (s *Store) forceUnlock(ctx context.Context, r metadata.Removal, a protocol.Action) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	removal, err := s.prepare(ctx, r)
	if err != nil {
		return s.changed(ctx, r, err)
	}
	resp, err := s.commitForced(ctx, removal, a)
	switch {
	case err == nil:
		return s.changed(ctx, r, outcome(removal, (*etcdserverpb.TxnResponse)(resp)))
	case locktxn.Refused(err), errors.Is(err, errNotSent) && !locktxn.NoSpace(err):
		return err
	}
	unknown := &unknownError{err}
	err = s.lookAgainForced(ctx, removal, unknown)
	if err == unknown && locktxn.NoSpace(unknown) {
		return s.forceUnlockSilently(ctx, removal, a)
	}
	return err
}

// forceUnlockSilently removes the hold without records. What it does can not be told from a release by the holder, and
// need not: the hold that the person wanted gone is gone.
func (s *Store) forceUnlockSilently(ctx context.Context, r *locktxn.Removal, a protocol.Action) error {
	s.log.Warn().Str("lock", a.Lock).Str("uuid", a.UUID).Int64("token", a.Token).Str("actor", a.Actor).Str("source",
		a.Source).
		Str("holder", a.Holder).Str("reason", a.Reason).Str("ticket", a.Ticket).
		Msg("etcd is out of space: a lock is removed by force, without history and audit")
	_, err := locktxn.ForceUnlockSilently(s.layout, r).Commit(ctx, s.etcd)
	if err != nil && !locktxn.Refused(err) {
		err = &unknownError{err}
	}
	return err
}

// ErrUnknown is in the chain of an error after which nobody knows whether a forced removal was done, or may still be
// done.
var ErrUnknown = errors.New("outcome unknown")

// unknownError is a request of which nobody knows what became.
type unknownError struct{ error }

func (e *unknownError) Error() string { return "outcome unknown, look again: " + e.error.Error() }
func (e *unknownError) Unwrap() error { return e.error }

// Is makes it an ErrUnknown.
func (e *unknownError) Is(target error) bool { return target == ErrUnknown }

var errNotSent = errors.New("no lease for the record of it")

func (s *Store) commitForced(ctx context.Context, r *locktxn.Removal,
	a protocol.Action) (*clientv3.TxnResponse, error) {
	for try := 0; ; try++ {
		history, err := s.history.current(ctx, 1)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errNotSent, err)
		}
		audit, err := s.audit.current(ctx, 1)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errNotSent, err)
		}
		put := clientv3.OpPut(s.layout.Audit(a.At.Time, a.ID), protocol.Marshal(a), clientv3.WithLease(audit))
		r.Lease = history
		r.Audit = &put
		resp, err := locktxn.ForceUnlock(s.layout, r).Commit(ctx, s.etcd)
		if !locktxn.LeaseGone(err) || try > 0 {
			return resp, err
		}
		s.history.gone(history)
		s.audit.gone(audit)
	}
}

// lookAgainForced tells what became of a removal whose answer got lost; it is unknown while the hold is still there.
func (s *Store) lookAgainForced(ctx context.Context, r *locktxn.Removal, unknown error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	resp, err := locktxn.ReadRemoval(s.layout, r.Record).Commit(ctx, s.etcd)
	if err != nil {
		return unknown
	}
	return s.changed(ctx, r.Removal, judge(r, (*etcdserverpb.TxnResponse)(resp), unknown))
}

// changed replaces ErrChanged by what is there now.
func (s *Store) changed(ctx context.Context, r metadata.Removal, err error) error {
	if err != metadata.ErrChanged {
		return err
	}
	now, _, err := s.Get(ctx, r.Record.Name)
	if err != nil {
		return metadata.ErrChanged
	}
	return &ChangedError{Now: now}
}
