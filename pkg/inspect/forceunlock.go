package inspect

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/clustermutex/unlocker/internal/lockstore"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// ChangedError means that nothing was done, because the hold that the caller saw is over. It wraps
// [metadata.ErrChanged].
type ChangedError struct {
	Name   string               // of the lock
	Holder *metadata.FullRecord // who holds the lock now; nil if nobody does or it is unknown
}

func (e *ChangedError) Error() string {
	if e.Holder == nil {
		return fmt.Sprintf("nothing was done to lock %q: the hold is over", e.Name)
	}
	return fmt.Sprintf("nothing was done to lock %q: it is held by %s on %s now", e.Name, text.Visible(e.Holder.Owner),
		text.Visible(e.Holder.Hostname))
}

func (e *ChangedError) Unwrap() error { return metadata.ErrChanged }

// ForceUnlock ends the hold in r, whatever its deadlines, as "mutexctl force-unlock" does: in one transaction that
// checks that this very hold still stands, and records in the history and the audit trail who did it and why. by names
// the operator; reason is one line that the holder sees. A lock delay follows if the record asks for one.
//
// The holder is not stopped: until it learns of the loss, it and the next holder may work at the same time. Waiting for
// the auto-unlock is safer.
//
// A [*ChangedError] means that the hold was already over and nothing was done; an extension by the holder is not such a
// change. After a [metadata.ErrOutcomeUnknown], read the lock again. An etcd that is out of space cannot store the
// records: the hold is ended anyway, without a lock delay, and [Options].Logger logs it.
func (i *Inspector) ForceUnlock(ctx context.Context, r *metadata.Record, by, reason string) error {
	if err := i.forceUnlock(ctx, r, by, reason); err != nil {
		return fmt.Errorf("inspect: %w", err)
	}
	return nil
}

func (i *Inspector) forceUnlock(ctx context.Context, r *metadata.Record, by, reason string) error {
	if err := check(r, by, reason); err != nil {
		return err
	}
	a := protocol.Action{
		ID: rand.Text(), At: metadata.Time{Time: time.Now()}, Actor: by, Source: protocol.SourceProgram,
		Lock: r.Name, UUID: r.UUID, Token: r.Token, Revision: r.Revision,
		Holder: text.Visible(r.Owner) + " on " + text.Visible(r.Hostname), Reason: reason, Result: "success",
	}
	on := protocol.ActionTarget{Hold: r, LockDelayAfter: r.EffectiveLockDelay(0)}
	_, err := i.locks.Perform(ctx, protocol.VerbForceUnlock, on, a)
	changed, isChanged := errors.AsType[*lockstore.ChangedError](err)
	switch {
	case isChanged && changed.Current.Token != 0:
		return &ChangedError{Name: r.Name, Holder: &changed.Current}
	case errors.Is(err, metadata.ErrChanged):
		return &ChangedError{Name: r.Name}
	}
	return err
}

// check refuses a record that does not name a hold, and an invalid operator or reason.
func check(r *metadata.Record, by, reason string) error {
	switch {
	case r == nil || r.Revision == 0:
		return errors.New("force unlock: the record was not read from etcd")
	case r.Misplaced:
		return errors.New("force unlock: the record is at keys that belong to no lock")
	}
	if err := cmp.Or(protocol.CheckOperator(by), protocol.CheckReason(reason)); err != nil {
		return fmt.Errorf("force unlock: %w", err)
	}
	return nil
}

// logUnrecorded logs a force unlock that etcd cannot record.
func logUnrecorded(log *slog.Logger, a protocol.Action) {
	log.LogAttrs(context.Background(), slog.LevelWarn,
		"etcd is out of space: a lock is removed by force, without history and audit",
		slog.String("lock", a.Lock), slog.String("uuid", a.UUID), slog.Int64("token", a.Token),
		slog.String("actor", a.Actor), slog.String("holder", a.Holder), slog.String("reason", a.Reason))
}
