package lockstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/locktxn"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// AskHolder asks the holder that an operator saw to finish, and records the action, whose At, Actor, Source and Reason
// the request repeats. A later request replaces an earlier one. Its errors are those of [Store.ForceUnlock], and a
// [*RefusedError] for what cannot be asked; in an etcd that is out of space nothing is done.
func (s *Store) AskHolder(ctx context.Context, r *metadata.Record, a protocol.Action) error {
	request := metadata.Request{UUID: r.UUID, Token: r.Token, By: a.Actor, Source: a.Source, At: a.At, Reason: a.Reason}
	err := refused(protocol.CheckAsk(r), protocol.CheckReason(a.Reason), checkSize(protocol.Marshal(request)))
	if err == nil {
		err = s.act(ctx, r, a,
			func(audit clientv3.Op) locktxn.Txn { return locktxn.AskHolder(s.layout, r.Name, request, audit) },
			func(*metadata.Record) bool { return true })
	}
	if err != nil {
		return fmt.Errorf("ask the holder of %q to finish: %w", r.Name, err)
	}
	return nil
}

// Extend gives the holder that an operator saw a.Seconds more time, counted from a.At or, if that is later, from each
// of the deadlines that the operator saw; see [protocol.MoreTime]. Its errors are those of [Store.AskHolder]: the hold
// has changed, too, if its deadline was moved meanwhile.
func (s *Store) Extend(ctx context.Context, r *metadata.Record, a protocol.Action) error {
	by := metadata.Extension{UUID: r.UUID, Token: r.Token, By: a.Actor, Source: a.Source, At: a.At, Reason: a.Reason,
		AutoUnlockAt: metadata.Time{Time: r.AutoUnlockAt}, Seconds: a.Seconds}
	err := refused(protocol.CheckMoreTime(r, by.Given(), a.At.Time), protocol.CheckReason(a.Reason),
		checkSize(protocol.Marshal(by)))
	if err == nil {
		alertAt, autoUnlockAt := protocol.MoreTime(r, by.Given(), a.At.Time)
		err = s.act(ctx, r, a,
			func(audit clientv3.Op) locktxn.Txn {
				return locktxn.Extend(s.layout, locktxn.Extension{Record: r, AlertAt: metadata.FormatTime(alertAt),
					AutoUnlockAt: metadata.FormatTime(autoUnlockAt), By: by, Audit: audit})
			},
			func(now *metadata.Record) bool { return now.DeadlineRevision == r.DeadlineRevision })
	}
	if err != nil {
		return fmt.Errorf("give the holder of %q more time: %w", r.Name, err)
	}
	return nil
}

// Acknowledge records for a.Seconds that the operator looks at the hold in r, with a.Reason as the note, and records
// the action. A later acknowledgement replaces an earlier one. Its errors are those of [Store.AskHolder].
func (s *Store) Acknowledge(ctx context.Context, r *metadata.Record, a protocol.Action) error {
	if err := s.acknowledge(ctx, r, a); err != nil {
		return fmt.Errorf("acknowledge %q: %w", r.Name, err)
	}
	return nil
}

func (s *Store) acknowledge(ctx context.Context, r *metadata.Record, a protocol.Action) error {
	d := time.Duration(a.Seconds) * time.Second
	by := metadata.Acknowledgement{UUID: r.UUID, Token: r.Token, By: a.Actor, Source: a.Source, At: a.At,
		Until: metadata.Time{Time: a.At.Add(d)}, Note: a.Reason}
	err := refused(protocol.CheckAcknowledge(r), protocol.CheckAcknowledgeFor(d), protocol.CheckNote(a.Reason),
		checkSize(protocol.Marshal(by)))
	if err != nil {
		return err
	}
	lease, err := s.grant(ctx, a.Seconds)
	if err != nil {
		return err
	}
	err = s.act(ctx, r, a,
		func(audit clientv3.Op) locktxn.Txn { return locktxn.Acknowledge(s.layout, r.Name, by, lease, audit) },
		func(*metadata.Record) bool { return true })
	if err != nil && !errors.Is(err, ErrUnknown) {
		s.revoke(ctx, lease)
	}
	return err
}

// grant returns a lease for one key. It is not shared: acknowledgements are rare, and each ends at a time of its own.
func (s *Store) grant(ctx context.Context, seconds int64) (clientv3.LeaseID, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	resp, err := s.etcd.Grant(ctx, seconds)
	switch {
	case err == nil:
		return resp.ID, nil
	case locktxn.NoSpace(err):
		return clientv3.NoLease, fmt.Errorf("%w: %w", ErrNoSpace, err)
	}
	return clientv3.NoLease, fmt.Errorf("no lease: %w", err)
}

// revoke gives back a lease without keys. If that fails, it ends by itself.
func (s *Store) revoke(ctx context.Context, lease clientv3.LeaseID) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	if _, err := s.etcd.Revoke(ctx, lease); err != nil {
		s.log.Debug().Err(err).Msg("a lease without keys was not revoked; it ends by itself")
	}
}

// WithdrawAcknowledgement ends the acknowledgement in r before its time, if it is still the one that the operator saw,
// and records the action. Its errors are those of [Store.AskHolder]: the hold has changed, too, if somebody else has
// acknowledged it meanwhile.
func (s *Store) WithdrawAcknowledgement(ctx context.Context, r *metadata.Record, a protocol.Action) error {
	err := refused(protocol.CheckAcknowledge(r), protocol.CheckWithdraw(r), protocol.CheckNote(a.Reason))
	if err == nil {
		err = s.act(ctx, r, a,
			func(audit clientv3.Op) locktxn.Txn {
				return locktxn.WithdrawAcknowledgement(s.layout, r.Name, r.Acknowledged, audit)
			},
			func(now *metadata.Record) bool {
				return now.Acknowledged != nil && now.Acknowledged.Revision == r.Acknowledged.Revision
			})
	}
	if err != nil {
		return fmt.Errorf("withdraw the acknowledgement of %q: %w", r.Name, err)
	}
	return nil
}

// refused returns the first of the errors as a RefusedError, or nil.
func refused(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return &RefusedError{err}
		}
	}
	return nil
}

// checkSize refuses a document that readers would not read.
func checkSize(document string) error {
	if len(document) > metadata.MaxDocumentBytes {
		return fmt.Errorf("the reason is too long: stored with it, this has %d bytes, and at most %d are read",
			len(document), metadata.MaxDocumentBytes)
	}
	return nil
}

// RefusedError says why an action makes no sense for a hold. Nothing was done.
type RefusedError struct{ err error }

// Error returns the reason as a sentence.
func (e *RefusedError) Error() string { return e.err.Error() }

// ErrNoSpace is wrapped by the error of an action that etcd did not take because it is out of space.
var ErrNoSpace = errors.New("nothing was done: etcd is out of space and takes no writes")

// act does what an operator wants with the hold in r, and writes the audit record in the same transaction. If etcd's
// answer is lost, that record shows what became of it. Without one, it may still happen while possible returns true.
func (s *Store) act(ctx context.Context, r *metadata.Record, a protocol.Action,
	build func(audit clientv3.Op) locktxn.Txn, possible func(now *metadata.Record) bool) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	resp, err := s.commitAudited(ctx, a, build)
	switch {
	case err == nil && resp.Succeeded:
		return nil
	case err == nil:
		return s.changed(ctx, r.Name, metadata.ErrChanged)
	case errors.Is(err, errNotSent) && locktxn.NoSpace(err):
		return fmt.Errorf("%w: %w", ErrNoSpace, err)
	case locktxn.Refused(err), errors.Is(err, errNotSent):
		return err
	}
	return s.recheckAction(ctx, r, a, possible, err)
}

// recheckAction reads what became of an action whose answer was lost.
func (s *Store) recheckAction(ctx context.Context, r *metadata.Record, a protocol.Action,
	possible func(now *metadata.Record) bool, cause error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	resp, err := locktxn.ReadAction(s.layout, s.layout.Audit(a.At.Time, a.ID), r.Name).Commit(ctx, s.etcd)
	if err != nil {
		return &unknownError{cause}
	}
	now := metadata.Decode(r.Name, locktxn.Fields(s.layout, locktxn.Keys(resp, 1)))
	switch {
	case locktxn.Keys(resp, 0).Count > 0:
		return nil
	case locktxn.NoSpace(cause): // an answer of etcd's, so nothing is on its way
		return fmt.Errorf("%w: %w", ErrNoSpace, cause)
	case now.UUID == r.UUID && now.Token == r.Token && possible(&now.Record):
		return &unknownError{cause}
	}
	return &ChangedError{Now: now}
}

// commitAudited sends a transaction that records the action. If a lease was revoked meanwhile, it sends it once more,
// with others.
func (s *Store) commitAudited(ctx context.Context, a protocol.Action,
	build func(audit clientv3.Op) locktxn.Txn) (*clientv3.TxnResponse, error) {
	for try := 0; ; try++ {
		lease, err := s.audit.current(ctx, 1)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errNotSent, err)
		}
		audit := clientv3.OpPut(s.layout.Audit(a.At.Time, a.ID), protocol.Marshal(a), clientv3.WithLease(lease))
		resp, err := build(audit).Commit(ctx, s.etcd)
		if !locktxn.LeaseGone(err) || try > 0 {
			return resp, err
		}
		s.audit.discard(lease)
	}
}
