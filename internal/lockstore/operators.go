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

// Perform applies a verb to the hold or lock delay that an operator saw, and records the action in the same
// transaction. Its errors are
//
//   - [metadata.ErrChanged] if that is over or has changed, for a hold as a [*ChangedError],
//   - a [*protocol.RefusedError] if it cannot be applied,
//   - [ErrNoSpace] in an etcd that is out of space,
//
// after which nothing was done, and [metadata.ErrOutcomeUnknown]: if etcd's answer is lost, the store does not send
// again but reads what happened, which may leave the outcome open.
//
// A hold or a lock delay can be ended even if etcd is out of space: then the log line is the only record, and no lock
// delay follows.
func (s *Store) Perform(ctx context.Context, v protocol.Verb, on protocol.ActionTarget,
	a protocol.Action) (protocol.Outcome, error) {
	a.Verb = v
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	out, err := s.perform(ctx, v, on, a)
	if err != nil {
		return out, fmt.Errorf("%s %q: %w", v, a.Lock, err)
	}
	return out, nil
}

func (s *Store) perform(ctx context.Context, v protocol.Verb, on protocol.ActionTarget,
	a protocol.Action) (out protocol.Outcome, err error) {
	switch {
	case v == protocol.VerbForceUnlock:
		removal := protocol.ForcedRemoval(on.Hold, a, on.LockDelayAfter)
		removal.IfUnchanged = on.IfUnchanged
		out = protocol.Outcome{Ending: removal.Ending, LockDelayAfter: removal.Delay}
		return out, s.forceUnlock(ctx, removal, a)
	case v == protocol.VerbEndDelay:
		return out, s.endDelay(ctx, on.Delay, a)
	case v.IsKnown():
		return out, s.performOnRecord(ctx, on.Hold, a)
	}
	return out, &protocol.RefusedError{Reason: fmt.Sprintf("there is no action %q", v)}
}

func (s *Store) performOnRecord(ctx context.Context, r *metadata.Record, a protocol.Action) error {
	if err := a.Verb.CheckAction(r, a); err != nil {
		return &protocol.RefusedError{Reason: err.Error()}
	}
	mark := a.Verb.Info().Mark
	document := mark.Document(r, a)
	if len(document) > lockrecord.MaxDocumentBytes { // readers would not read it
		return &protocol.RefusedError{Reason: fmt.Sprintf("the reason is too long: stored with it, this has %d bytes, "+
			"and at most %d are read", len(document), lockrecord.MaxDocumentBytes)}
	}
	lease := clientv3.NoLease // not shared: such marks are rare, and each ends at a different time
	err := s.performAudited(ctx, a,
		s.holdTarget(r, func(now *metadata.Record) bool { return isPossible(a.Verb, r, now) }),
		func(ctx context.Context) (resp *clientv3.TxnResponse, err error) {
			if mark.Leased {
				if lease, err = grantLease(ctx, s.etcd, a.Duration()); err != nil {
					return nil, err
				}
			}
			return s.commitAudited(ctx, a, func(audit clientv3.Op) locktxn.Txn {
				return s.changeRecord(r, a, document, lease, audit)
			})
		})
	if err != nil && lease != clientv3.NoLease && !errors.Is(err, metadata.ErrOutcomeUnknown) {
		s.revoke(ctx, lease)
	}
	return err
}

// changeRecord returns the transaction of an action. More time moves each deadline; see [protocol.NewDeadlines]. Most
// actions only write a mark, replacing an existing one.
func (s *Store) changeRecord(r *metadata.Record, a protocol.Action, document string, lease clientv3.LeaseID,
	audit clientv3.Op) locktxn.Txn {
	switch a.Verb {
	case protocol.VerbExtend:
		alertAt, autoUnlockAt := protocol.NewDeadlines(r, a.Duration(), a.At.Time)
		return locktxn.GiveMoreTime(s.layout, locktxn.MoreTime{Record: r, AlertAt: metadata.FormatTime(alertAt),
			AutoUnlockAt: metadata.FormatTime(autoUnlockAt), Document: document, Audit: audit})
	case protocol.VerbWithdraw:
		return locktxn.WithdrawAcknowledgement(s.layout, r.Name, r.Acknowledgement, audit)
	}
	hold := locktxn.Hold{Lock: r.Name, UUID: r.UUID, Token: r.Token}
	return locktxn.PutMark(s.layout, hold, a.Verb.Info().Mark.Field, document, lease, audit)
}

// isPossible reports whether an action on the hold that was seen in r may still be done: not if its deadline was moved,
// or the acknowledgement replaced.
func isPossible(v protocol.Verb, r, now *metadata.Record) bool {
	switch v {
	case protocol.VerbExtend:
		return now.DeadlineRevision == r.DeadlineRevision
	case protocol.VerbWithdraw:
		return now.Acknowledgement != nil && now.Acknowledgement.Revision == r.Acknowledgement.Revision
	}
	return true
}

// revoke revokes a lease without keys. If that fails, the lease expires.
func (s *Store) revoke(ctx context.Context, lease clientv3.LeaseID) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	if _, err := s.etcd.Revoke(ctx, lease); err != nil {
		s.log.Debug().Err(err).Msg("a lease without keys was not revoked; it will expire")
	}
}

// ErrNoSpace is wrapped by the error of an action that etcd refused because it is out of space.
var ErrNoSpace = errors.New("nothing was done: etcd is out of space and takes no writes")

type target struct {
	read clientv3.Op
	// check returns the error of an action that was not done, after what read now returns: that the target has changed.
	// The action may still be done while stillPossible is true.
	check func(now *clientv3.GetResponse) (stillPossible bool, changed error)
}

// holdTarget returns the hold in r as a target. stillPossible reports whether an action on the hold, which still
// stands, may still be done.
func (s *Store) holdTarget(r *metadata.Record, stillPossible func(now *metadata.Record) bool) target {
	record := clientv3.OpGet(s.layout.Record(r.Name), clientv3.WithPrefix())
	return target{record, func(read *clientv3.GetResponse) (bool, error) {
		now := lockrecord.Decode(r.Name, locktxn.Fields(s.layout, read))
		stands := len(now.Fields) > 0 && now.UUID == r.UUID && now.Token == r.Token
		return stands && stillPossible(&now.Record), &ChangedError{Current: now}
	}}
}

// performAudited sends an action, with an audit record in the same transaction. If etcd's answer is lost, that record
// shows whether it was done.
func (s *Store) performAudited(ctx context.Context, a protocol.Action, on target,
	commit func(context.Context) (*clientv3.TxnResponse, error)) error {
	resp, err := commit(ctx)
	switch {
	case err == nil && resp.Succeeded:
		return nil
	case errors.Is(err, errNotSent) && locktxn.IsNoSpace(err):
		return fmt.Errorf("%w: %w", ErrNoSpace, err)
	case locktxn.IsRefused(err), errors.Is(err, errNotSent):
		return err
	}
	return s.recheckAction(ctx, a, on, err)
}

// recheckAction reads whether an action was done whose answer was lost, with this cause, or whose compares failed: then
// the cause is nil, and an earlier send may have done it.
func (s *Store) recheckAction(ctx context.Context, a protocol.Action, on target, cause error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	audited := clientv3.OpGet(s.layout.Audit(a.At.Time, a.ID), clientv3.WithCountOnly())
	resp, err := s.etcd.Txn(ctx).Then(audited, on.read).Commit()
	switch {
	case err != nil && cause == nil:
		return metadata.ErrChanged
	case err != nil:
		return &unknownError{cause}
	case locktxn.Keys(resp, 0).Count > 0:
		return nil
	case locktxn.IsNoSpace(cause): // etcd has answered, so nothing is in flight
		return fmt.Errorf("%w: %w", ErrNoSpace, cause)
	}
	stillPossible, changed := on.check(locktxn.Keys(resp, 1))
	if cause != nil && stillPossible {
		return &unknownError{cause}
	}
	return changed
}

// commitAudited sends a transaction that records the action.
func (s *Store) commitAudited(ctx context.Context, a protocol.Action,
	build func(audit clientv3.Op) locktxn.Txn) (*clientv3.TxnResponse, error) {
	return s.audit.commitWithLease(ctx, 1, func(lease clientv3.LeaseID) (*clientv3.TxnResponse, error) {
		audit := clientv3.OpPut(s.layout.Audit(a.At.Time, a.ID), protocol.Marshal(a), clientv3.WithLease(lease))
		return build(audit).Commit(ctx, s.etcd)
	})
}
