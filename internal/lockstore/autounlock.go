package lockstore

import (
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"

	"github.com/clustermutex/unlocker/internal/locktxn"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

const (
	// batchRemovals is how many removals travel in one transaction: with more, those who lock meanwhile wait longer,
	// with fewer the sweep takes longer (docs/protocol.md). A nested transaction counts as one of the 128 operations
	// that etcd allows.
	batchRemovals = 64
	batchBytes    = 1 << 20 // of 1.5 MB that etcd allows
)

// removal is one removal on its way, with the place of its result.
type removal struct {
	*locktxn.Removal
	result *error
}

// bytes is about what the removal takes in a request: the name stands in seven keys.
func (r removal) bytes() int { return 600 + len(r.History()) + 7*len(r.Record.Name) }

// batch is what travels in one transaction.
type batch struct {
	removals []removal
	lease    clientv3.LeaseID
}

// AutoUnlock removes stale locks, the first ones first, each only if it is still as it was judged: same hold, same
// deadline. The results stand in the same order: nil = removed by this call, [metadata.ErrChanged] = the holder moved,
// which nobody needs to retry; after any other error the lock may be there or not: look again. When ctx ends, the batch
// in flight is seen through.
func (s *Store) AutoUnlock(ctx context.Context, removals []metadata.Removal) []error {
	s.worker.Lock()
	defer s.worker.Unlock()
	results := make([]error, len(removals))
	batches := make(chan batch, 1) // the next one is made while one is in flight
	go s.makeBatches(ctx, removals, results, batches)
	for b := range batches {
		if err := context.Cause(ctx); err != nil {
			b.fail(err)
			continue
		}
		s.removeAll(ctx, b)
	}
	return results
}

// makeBatches sends all removals in batches that etcd takes in one transaction.
func (s *Store) makeBatches(ctx context.Context, removals []metadata.Removal, results []error, batches chan<- batch) {
	defer close(batches)
	var b batch
	bytes := 0
	endings := map[string]bool{}
	flush := func() {
		var err error
		if len(b.removals) == 0 {
			return
		}
		if b.lease, err = s.history.current(ctx, len(b.removals)); err != nil {
			b.fail(fmt.Errorf("no lease for the history: %w", err))
		} else {
			batches <- b
		}
		b = batch{}
		bytes = 0
		endings = map[string]bool{}
	}
	for i, r := range removals {
		prepared, err := s.prepare(ctx, r)
		if err != nil {
			results[i] = err
			continue
		}
		next := removal{prepared, &results[i]}
		// etcd refuses two puts of one key in one transaction, which is what two records with the same uuid come to.
		id := r.Record.HistoryID()
		if len(b.removals) == batchRemovals || bytes+next.bytes() > batchBytes || endings[id] {
			flush()
		}
		b.removals, bytes, endings[id] = append(b.removals, next), bytes+next.bytes(), true
		if len(next.Ranges) > 0 {
			flush() // many operations
		}
	}
	flush()
}

func (b batch) fail(err error) {
	for _, r := range b.removals {
		*r.result = err
	}
}

// part is some of the batch.
func (b batch) part(from, to int) batch { return batch{b.removals[from:to], b.lease} }

// removeAll commits a batch and fills in its results.
func (s *Store) removeAll(ctx context.Context, b batch) {
	resp, err := s.commitAll(ctx, b)
	switch n := len(b.removals); {
	case err == nil:
		for i, r := range b.removals {
			*r.result = outcome(r.Removal, resp.Responses[i].GetResponseTxn())
		}
	case locktxn.Code(err) == codes.InvalidArgument && n > 1:
		// Too much for this etcd, or something is wrong with one of them, which must not spare the others.
		s.removeAll(ctx, b.part(0, n/2))
		s.removeAll(ctx, b.part(n/2, n))
	case locktxn.Refused(err):
		b.fail(err)
	default:
		s.lookAgain(ctx, b, err)
	}
}

func (s *Store) commitAll(ctx context.Context, b batch) (*clientv3.TxnResponse, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	resp, err := s.commitWith(ctx, b)
	if locktxn.LeaseGone(err) {
		s.history.gone(b.lease)
		lease, grantErr := s.history.current(ctx, len(b.removals))
		if grantErr != nil {
			return nil, err // a refusal: nothing was done
		}
		b.lease = lease
		return s.commitWith(ctx, b)
	}
	return resp, err
}

func (s *Store) commitWith(ctx context.Context, b batch) (*clientv3.TxnResponse, error) {
	txns := make([]locktxn.Txn, len(b.removals))
	for i, r := range b.removals {
		r.Lease = b.lease
		txns[i] = locktxn.AutoUnlock(s.layout, r.Removal)
	}
	return locktxn.Nest(txns).Commit(ctx, s.etcd)
}
