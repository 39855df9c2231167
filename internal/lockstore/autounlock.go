package lockstore

import (
	"context"
	"errors"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"

	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/locktxn"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

const (
	// maxBatchRemovals is how many removals go into one transaction: more would delay lock holders, fewer would slow
	// down the sweep. A nested transaction counts as one of the 128 operations that etcd allows.
	maxBatchRemovals = 64
	maxBatchBytes    = 1 << 20 // etcd allows 1.5 MB
)

// removal is one removal of a batch, with the place for its result.
type removal struct {
	*locktxn.Removal
	result *error
}

// bytes estimates how many bytes the removal takes in a request: the name occurs in eight keys.
func (r removal) bytes() int {
	n := 600 + len(r.History()) + 8*len(r.Record.Name)
	if r.HasDelay() {
		n += lockrecord.MaxDelayBytes
	}
	return n
}

// batch is the removals of one transaction.
type batch []removal

// AutoUnlock removes stale locks in order. It removes each only if the hold and its deadline are as they were judged
// and, for a removal as [metadata.EndingAbandoned], the proof still stands that the holder has ended. A removal with a
// Delay leaves a lock delay. The results are in the same order: nil means that this call removed the lock, and
// [metadata.ErrChanged] that the hold, the deadline or the proof has changed, so that retrying is pointless. After any
// other error the lock may or may not exist: read it again. When ctx ends, the batch in flight is completed.
func (s *Store) AutoUnlock(ctx context.Context, removals []lockrecord.Removal) []error {
	results := make([]error, len(removals))
	var b batch
	send := func() {
		if err := context.Cause(ctx); err != nil {
			b.fail(err)
		} else if len(b) > 0 {
			s.removeAll(ctx, b)
		}
		b = nil
	}
	for i, r := range removals {
		prepared, err := s.prepareRemoval(ctx, r)
		if err != nil {
			results[i] = err
			continue
		}
		next := removal{prepared, &results[i]}
		if !b.hasRoomFor(next) {
			send()
		}
		b = append(b, next)
	}
	send()
	return results
}

// hasRoomFor reports whether r fits into the transaction.
func (b batch) hasRoomFor(r removal) bool {
	if len(b) == maxBatchRemovals || len(b) > 0 && (len(r.Ranges) > 0 || len(b[0].Ranges) > 0) { // many operations
		return false
	}
	bytes := r.bytes()
	for _, other := range b {
		// etcd refuses two puts of one key in one transaction, which two records with the same uuid would need.
		if other.Record.HistoryID() == r.Record.HistoryID() {
			return false
		}
		bytes += other.bytes()
	}
	return bytes <= maxBatchBytes
}

// fail sets this result for all removals of the batch.
func (b batch) fail(err error) {
	for _, r := range b {
		*r.result = err
	}
}

// removeAll commits a batch and fills in its results.
func (s *Store) removeAll(ctx context.Context, b batch) {
	resp, err := s.commitAll(ctx, b)
	switch n := len(b); {
	case err == nil:
		for i, r := range b {
			*r.result = removalResult(r.Removal, resp.Responses[i].GetResponseTxn())
		}
	case locktxn.Code(err) == codes.InvalidArgument && n > 1:
		// Either the batch is too large for this etcd, or one removal is invalid, which must not stop the rest.
		s.removeAll(ctx, b[:n/2])
		s.removeAll(ctx, b[n/2:])
	case locktxn.IsRefused(err), errors.Is(err, errNotSent):
		b.fail(err)
	default:
		s.recheck(ctx, b, err)
	}
}

func (s *Store) commitAll(ctx context.Context, b batch) (*clientv3.TxnResponse, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	return s.history.commitWithLease(ctx, len(b), func(lease clientv3.LeaseID) (*clientv3.TxnResponse, error) {
		renew, err := s.grantDelays(ctx, b...)
		if err != nil {
			return nil, err
		}
		defer renew(ctx)
		txns := make([]locktxn.Txn, len(b))
		for i, r := range b {
			r.HistoryLease = lease
			if txns[i] = locktxn.AutoUnlock(s.layout, r.Removal); r.Ending.Cause == metadata.EndingAbandoned {
				txns[i] = locktxn.RemoveAbandoned(s.layout, r.Removal)
			}
		}
		return locktxn.Nest(txns).Commit(ctx, s.etcd)
	})
}

// removalResult returns the result of one removal, from etcd's answer.
func removalResult(r *locktxn.Removal, resp *etcdserverpb.TxnResponse) error {
	if resp.Succeeded {
		return nil
	}
	for _, op := range resp.Responses[1:] { // the first one is the record
		if wroteEnding(r, op.GetResponseRange()) {
			return nil // an earlier attempt did it
		}
	}
	return metadata.ErrChanged
}

// wroteEnding reports whether the history has exactly the ending that r writes.
func wroteEnding(r *locktxn.Removal, history *etcdserverpb.RangeResponse) bool {
	return len(history.GetKvs()) == 1 && string(history.Kvs[0].Value) == r.History()
}

// recheck reads the outcome of a batch whose answer was lost. Sending it again would be just as safe, but the caller
// may no longer want these removals.
func (s *Store) recheck(ctx context.Context, b batch, cause error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	reads := make([]locktxn.Txn, len(b))
	for i, r := range b {
		reads[i] = locktxn.ReadRemoval(s.layout, r.Record)
	}
	resp, err := locktxn.Nest(reads).Commit(ctx, s.etcd)
	for i, r := range b {
		*r.result = &unknownError{cause}
		if err == nil {
			*r.result = removalResultByReading(r.Removal, resp.Responses[i].GetResponseTxn(), *r.result)
		}
	}
}

// removalResultByReading returns the result of a removal whose answer was lost, from what [locktxn.ReadRemoval] read.
// It stays unknown while the hold exists, because the removal may still be committed.
func removalResultByReading(r *locktxn.Removal, read *etcdserverpb.TxnResponse, unknown error) error {
	uuid := read.Responses[0].GetResponseRange()
	record := read.Responses[1].GetResponseRange()
	history := read.Responses[2].GetResponseRange()
	token := int64(0)
	if len(uuid.Kvs) == 1 {
		token = uuid.Kvs[0].CreateRevision
	}
	switch {
	case r.Record.Token != 0 && wroteEnding(r, history):
		return nil
	case r.Record.Token == 0 && record.Count == 0:
		return nil // it had no holder: it only matters that it is gone
	case token == r.Record.Token:
		return unknown
	}
	return metadata.ErrChanged
}
