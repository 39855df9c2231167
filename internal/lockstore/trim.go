package lockstore

import (
	"context"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/locktxn"
)

// DefaultHistoryMax is how many endings are kept unless told otherwise.
const DefaultHistoryMax = 10_000

const (
	// trimKeys is how many endings are looked up at once. etcd reads all of them for it, so this is no small number.
	trimKeys = 10_000
	// trimPause lets those who lock go first: at most 64 endings are deleted in one transaction, and ten times that a
	// second.
	trimPause = 100 * time.Millisecond
)

// TrimHistory deletes the oldest endings, all but the newest max, and tells how many it deleted. Others may trim at the
// same time. An ending that was written anew meanwhile stays. It works in an etcd without space, where it makes some.
func (s *Store) TrimHistory(ctx context.Context, max int) (deleted int, err error) {
	for {
		oldest, err := s.oldest(ctx, max)
		if err != nil || len(oldest) == 0 {
			return deleted, err
		}
		n, err := s.forget(ctx, oldest)
		deleted += n
		if err != nil || n == 0 { // none: somebody else was faster
			return deleted, err
		}
	}
}

// oldest returns endings that are too many, the oldest ones first.
func (s *Store) oldest(ctx context.Context, max int) ([]*mvccpb.KeyValue, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	area := s.layout.Histories()
	count, err := s.etcd.Get(ctx, area, clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		return nil, fmt.Errorf("count the endings: %w", err)
	}
	excess := count.Count - int64(max)
	if excess <= 0 {
		return nil, nil
	}
	resp, err := s.etcd.Get(ctx, area, clientv3.WithPrefix(), clientv3.WithKeysOnly(),
		clientv3.WithLimit(min(excess, trimKeys)),
		clientv3.WithSort(clientv3.SortByModRevision, clientv3.SortAscend))
	if err != nil {
		return nil, fmt.Errorf("read which endings are the oldest: %w", err)
	}
	return resp.Kvs, nil
}

func (s *Store) forget(ctx context.Context, keys []*mvccpb.KeyValue) (deleted int, err error) {
	for len(keys) > 0 {
		n := min(len(keys), batchRemovals)
		done, err := s.forgetBatch(ctx, keys[:n])
		if deleted += done; err != nil {
			return deleted, err
		}
		if keys = keys[n:]; len(keys) == 0 {
			break
		}
		select {
		case <-ctx.Done():
			return deleted, context.Cause(ctx)
		case <-time.After(trimPause):
		}
	}
	return deleted, nil
}

func (s *Store) forgetBatch(ctx context.Context, keys []*mvccpb.KeyValue) (deleted int, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	txns := make([]locktxn.Txn, len(keys))
	for i, kv := range keys {
		txns[i] = locktxn.Forget(string(kv.Key), kv.ModRevision)
	}
	resp, err := locktxn.Nest(txns).Commit(ctx, s.etcd)
	if err != nil {
		return 0, fmt.Errorf("delete old endings: %w", err)
	}
	for _, r := range resp.Responses {
		if r.GetResponseTxn().GetSucceeded() {
			deleted++
		}
	}
	return deleted, nil
}
