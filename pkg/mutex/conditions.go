package mutex

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strconv"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/locktxn"
	"github.com/clustermutex/unlocker/internal/locktxn/etcdretry"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// UnlockWith releases the lock and writes the caller's own keys, as for [Then], in the same transaction, if the
// compares hold: the writes are done if and only if the lock was held until then.
//
// nil means that both happened. A [*LostError] means that the hold was already over and nothing was written. After any
// other error, such as a [*ConditionError], the lock is held as before.
//
// After a [metadata.ErrOutcomeUnknown], call UnlockWith again with the same writes to learn what became of them, or
// [Lock.Unlock] to give up. It may also be a ConditionError: an earlier request went unanswered and may still be
// committed once the condition holds.
//
// It tries for [Options].RequestTimeout. Unlike Unlock it needs an etcd that accepts writes.
func (l *Lock) UnlockWith(writes []clientv3.Op, conditions ...clientv3.Cmp) error {
	if l.hasNoHold() {
		return errNoHold
	}
	err := l.unlockWith(writes, conditions)
	if err == nil || errors.Is(err, ErrNotHeld) || errors.Is(err, ErrCondition) {
		return err
	}
	return fmt.Errorf("unlock %q: %w", l.held.Lock, err)
}

func (l *Lock) unlockWith(writes []clientv3.Op, conditions []clientv3.Cmp) error {
	if err := l.checkOnlyHandle(); err != nil {
		return err
	}
	release := l.releaseTxn()
	if err := l.checkRelease(release, writes, conditions); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), l.c.opts.RequestTimeout)
	defer cancel()
	select {
	case l.extension.mutex <- struct{}{}: // an extension after the release would report a loss
		defer func() { <-l.extension.mutex }()
	case <-ctx.Done():
		return l.causeOr(ctx.Err())
	}
	if err := l.err(); err != nil {
		return err
	}
	defer l.beginRelease()()
	tombstone := tombstoneOf(writes)
	tombstones := l.c.releases
	if l.origin.cancel != nil { // the tombstone also blocks acquisition requests in flight
		tombstones = l.c.tombstones
	}
	r, err := tombstones.send(ctx, func(lease clientv3.LeaseID) locktxn.Txn {
		return locktxn.ReleaseWith(l.c.layout, l.held, release, tombstone, lease, conditions, writes)
	})
	switch {
	case err != nil && r.Indeterminate:
		return fmt.Errorf("%w: %w", metadata.ErrOutcomeUnknown, err)
	case err != nil:
		return err
	case r.Succeeded || isTombstone(r, tombstone):
		if l.endWith(ErrUnlocked) {
			l.notifyReleased(nil)
		}
		l.unlocking.once.Do(func() { l.freeLease(true) })
		return nil
	}
	if now := readRecord(l.c.layout, l.held.Lock, r, 1); !l.isHeldIn(&now) {
		return l.causeOr(l.loseRemoved(ctx, nil))
	}
	return l.refusal(r, conditions)
}

func (l *Lock) checkOnlyHandle() error {
	hold := l.root()
	if l.forGroup {
		return errors.New("this is the handle of several locks, and UnlockWith releases one: take it from Locks.All")
	}
	hold.mu.Lock()
	defer hold.mu.Unlock()
	if l != hold || hold.reentry.count > 0 {
		return errors.New("the hold was entered again, and other handles rely on it: unlock all but the first one " +
			"before")
	}
	return nil
}

// checkRelease refuses what etcd would refuse, and writes to keys of the locks.
func (l *Lock) checkRelease(release locktxn.Txn, writes []clientv3.Op, conditions []clientv3.Cmp) error {
	room := locktxn.MaxOps - max(len(release.If), len(release.Then)+1) - 1
	if err := l.c.checkWrites(conditions, writes, l.set.documents, room); err != nil {
		return err
	}
	return checkSize(locktxn.ReleaseWith(l.c.layout, l.held, release, "", 0, conditions, writes))
}

// tombstoneOf returns the value of a tombstone: the same for the same writes.
func tombstoneOf(writes []clientv3.Op) string {
	sum := sha256.New()
	for _, w := range writes {
		fmt.Fprintf(sum, "%v %q %q %q\n", w.IsPut(), w.KeyBytes(), w.RangeBytes(), w.ValueBytes())
	}
	return fmt.Sprintf("released %x", sum.Sum(nil)[:8])
}

func isTombstone(r etcdretry.Response, tombstone string) bool {
	kvs := r.Keys(0).Kvs
	return len(kvs) > 0 && string(kvs[0].Value) == tombstone
}

// refusal returns why a hold that stands was not released, from what the transaction read.
func (l *Lock) refusal(r etcdretry.Response, conditions []clientv3.Cmp) error {
	switch failed := l.c.conditionError(l.held.Lock, r, 2, conditions); {
	case failed == nil:
		return metadata.ErrOutcomeUnknown // etcd would not answer so
	case r.Indeterminate: // an earlier request may still arrive and find that they hold
		return fmt.Errorf("%w: %w", metadata.ErrOutcomeUnknown, failed)
	default:
		return failed
	}
}

// checkWrites refuses what etcd would refuse, and writes to keys of the locks.
func (c *Client) checkWrites(conditions []clientv3.Cmp, writes []clientv3.Op, documents locktxn.Documents,
	room int) error {
	if n := max(len(conditions), len(writes)); n > room {
		return fmt.Errorf("%d conditions or writes, at most %d fit into the transaction", n, room)
	}
	for _, compare := range conditions {
		if len(compare.KeyBytes()) == 0 {
			return errors.New("a condition names no key")
		}
	}
	for _, op := range writes {
		key := string(op.KeyBytes())
		switch {
		case !op.IsPut() && !op.IsDelete():
			return errors.New("Then takes puts and deletions only: it cannot return what reads and transactions answer")
		case key == "":
			return errors.New("a write names no key")
		case c.reaches(key, string(op.RangeBytes())) && !documents.Cover(op):
			return fmt.Errorf("the write to %s lies among the locks below %s", strconv.Quote(clip(key)),
				c.layout.Prefix())
		}
	}
	return nil
}

// checkSize refuses transactions that are too large for etcd, not all of whose answers to them say that nothing was
// done.
func checkSize(t locktxn.Txn) error {
	if n := t.Bytes(); n > locktxn.MaxBytes {
		const mebibyte = 1 << 20
		return fmt.Errorf("the conditions and writes make a transaction of %.1f MiB, etcd takes at most 1.5 MiB",
			float64(n)/mebibyte)
	}
	return nil
}

// reaches reports whether the key, or the range from it up to end, contains keys of the protocol.
func (c *Client) reaches(key, end string) bool {
	prefix := c.layout.Prefix()
	if end == "" {
		return strings.HasPrefix(key, prefix)
	}
	return (end == "\x00" || end > prefix) && key < protocol.End(prefix)
}

// conditionError returns the error about those of the caller's compares that did not hold; nil if all did. first is the
// number of the operation that reports on the first compare.
func (c *Client) conditionError(lock string, r etcdretry.Response, first int,
	conditions []clientv3.Cmp) *ConditionError {
	failed := locktxn.FailedCompares(r.TxnResponse, first, len(conditions))
	if len(failed) == 0 {
		return nil
	}
	e := &ConditionError{Name: lock, At: c.wall()}
	for i, compare := range conditions {
		if keys, ok := failed[i]; ok {
			e.Failed = append(e.Failed, FailedCondition{Compare: compare, Keys: keys.Kvs})
		}
	}
	return e
}
