package mutex

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/etcdretry"
	"github.com/clustermutex/unlocker/internal/locktxn"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// ErrCondition is what errors.Is finds when nothing was done because a compare of [If] did not hold.
var ErrCondition = errors.New("a condition does not hold")

// ErrUnknown says that etcd did not answer in time: what was asked for with the caller's own writes may have been done,
// or not. The caller finds out by its keys. What was taken is given back in the background.
var ErrUnknown = errors.New("it is not known whether it was done")

// If has [Client.TryLock] and [Client.TryLockAll] take the lock only if these compares hold as well, in the same
// transaction: compares of the caller's own keys in the same etcd, as for a transaction of its own. Otherwise the error
// is a [*ConditionError], also when the lock is held at the same time.
//
// It cannot be used with what waits for a lock: hold the lock, then compare in a transaction with [Lock.Guard].
func If(compares ...clientv3.Cmp) Option {
	return func(s *settings) { s.only = append(s.only, compares...) }
}

// Then has [Client.TryLock] and [Client.TryLockAll] write the caller's own keys in the transaction that takes the lock:
// puts and deletions. The lock is held if and only if the writes were done, at the revision that [Lock.Token] names.
// They are done once, however often an answer gets lost and the request is repeated.
//
// After an error they were not done and will not be, unless it is an [ErrUnknown], or a [*LostError]: then the lock was
// taken away before this process knew that it had it.
//
// The keys must lie outside of the prefix of the locks, and all of it must fit into a transaction of 1.5 MiB. It cannot
// be used with what waits for a lock, see [If].
func Then(writes ...clientv3.Op) Option {
	return func(s *settings) { s.with = append(s.with, writes...) }
}

// Documents lets [Then] and [Lock.UnlockWith] write these keys although they lie below the prefix. A hold that is taken
// for them is never entered again, whatever [Reentrant] says. The option is for packages of this module, whose
// documents change together with a lock: its argument is of an internal type.
func Documents(d locktxn.Documents) Option {
	return func(s *settings) {
		s.documents = d
		s.reentrant = false
	}
}

// ConditionError says that nothing was done because compares of the caller's did not hold.
type ConditionError struct {
	Lock   string
	Failed []FailedCondition
	Holder *metadata.Document // who held the lock at the same time; nil when nobody did
	At     time.Time          // wall clock of this process
}

// FailedCondition is a compare that did not hold, and what etcd had then.
type FailedCondition struct {
	Compare clientv3.Cmp
	Keys    []*mvccpb.KeyValue // of the key, or the first ones of the range; empty when there was none
}

// Error is one line that says what stood in the way.
func (e *ConditionError) Error() string {
	facts := make([]string, len(e.Failed))
	for i, f := range e.Failed {
		facts[i] = f.String()
	}
	return fmt.Sprintf("lock %q: %v: %s", e.Lock, ErrCondition, strings.Join(facts, "; "))
}

// Is makes every ConditionError an [ErrCondition].
func (e *ConditionError) Is(target error) bool { return target == ErrCondition }

// String says what the key had.
func (f FailedCondition) String() string {
	switch len(f.Keys) {
	case 0:
		return fmt.Sprintf("there is no key %s", strconv.Quote(clip(string(f.Compare.KeyBytes()))))
	case 1:
		kv := f.Keys[0]
		return fmt.Sprintf("key %s is %s since revision %d", strconv.Quote(clip(string(kv.Key))),
			strconv.Quote(clip(string(kv.Value))), kv.ModRevision)
	}
	return fmt.Sprintf("there are keys from %s on", strconv.Quote(clip(string(f.Keys[0].Key))))
}

// conditional reports whether the acquisition has conditions or writes of the caller's.
func (s *settings) conditional() bool { return len(s.only)+len(s.with) > 0 }

// errWaits refuses conditions of what waits: they would have to hold when the turn comes, while the place in the queue,
// its lease and the repetitions of three different transactions stand between.
var errWaits = errors.New("If and Then go with TryLock and TryLockAll: to wait, take the lock and use its Guard in a " +
	"transaction of your own")

// tryOn takes the lock if the caller's conditions hold.
func (a *acquisition) tryOn(ctx context.Context) (*Lock, error) {
	if a.set.kind.shared() {
		return nil, a.explain(errors.New("If and Then go with plain locks, not with those that several can hold"))
	}
	j := &batch{c: a.c, wanted: []*acquisition{a}, only: a.set.only, with: a.set.with}
	locks, err := j.try(ctx)
	if err != nil {
		return nil, a.explain(err)
	}
	return locks[0], nil
}

// checkWrites refuses what etcd would refuse, and what would reach into the locks.
func (c *Client) checkWrites(only []clientv3.Cmp, with []clientv3.Op, documents locktxn.Documents, room int) error {
	if n := max(len(only), len(with)); n > room {
		return fmt.Errorf("%d conditions or writes, at most %d fit into the transaction", n, room)
	}
	for _, compare := range only {
		if len(compare.KeyBytes()) == 0 {
			return errors.New("a condition names no key")
		}
	}
	for _, op := range with {
		key := string(op.KeyBytes())
		switch {
		case !op.IsPut() && !op.IsDelete():
			return errors.New("Then takes puts and deletions: reads and transactions would have nowhere to answer to")
		case key == "":
			return errors.New("a write names no key")
		case c.reaches(key, string(op.RangeBytes())) && !documents.Cover(op):
			return fmt.Errorf("the write to %s lies among the locks below %s", strconv.Quote(clip(key)),
				c.layout.Prefix())
		}
	}
	return nil
}

// checkSize refuses what etcd would refuse for its size: only one of its answers to that says that nothing was done.
func checkSize(t locktxn.Txn) error {
	if n := t.Bytes(); n > locktxn.MaxBytes {
		const mebibyte = 1 << 20
		return fmt.Errorf("the conditions and writes make a transaction of %.1f MiB, and etcd takes 1.5 MiB",
			float64(n)/mebibyte)
	}
	return nil
}

// reaches reports whether the key, or the range up to end, is one of the protocol's.
func (c *Client) reaches(key, end string) bool {
	prefix := c.layout.Prefix()
	if end == "" {
		return strings.HasPrefix(key, prefix)
	}
	return (end == "\x00" || end > prefix) && key < protocol.End(prefix)
}

// failed is the error of compares of the caller's that did not hold, nil where all did. first is the number of the
// operation that tells of the first one.
func (c *Client) failed(lock string, r etcdretry.Answer, first int, only []clientv3.Cmp) *ConditionError {
	failed := locktxn.Failed(r.TxnResponse, first, len(only))
	if len(failed) == 0 {
		return nil
	}
	e := &ConditionError{Lock: lock, At: c.wall()}
	for i, compare := range only {
		if keys, ok := failed[i]; ok {
			e.Failed = append(e.Failed, FailedCondition{Compare: compare, Keys: keys.Kvs})
		}
	}
	return e
}
