package lockstore

import (
	"context"
	"fmt"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/locktxn"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// ReadEnding reads how the hold with this uuid (see [metadata.Record.HistoryID]) ended, unless its holder released it.
// It returns nil if nothing is recorded: the hold was released, still exists, or ended long ago.
func (s *Store) ReadEnding(ctx context.Context, uuid string) (*metadata.Ending, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	resp, err := s.etcd.Get(ctx, s.layout.History(uuid))
	if err != nil {
		return nil, fmt.Errorf("read the ending of %s: %w", uuid, err)
	}
	if len(resp.Kvs) == 0 {
		return nil, nil
	}
	ending, err := protocol.Unmarshal[metadata.Ending](resp.Kvs[0].Value)
	if err != nil {
		return nil, fmt.Errorf("read the ending of %s: %w", uuid, err)
	}
	return &ending, nil
}

// ReadHistory reads the last endings of holds that their holders did not release, newest first, at most limit.
// Unreadable ones are left out.
func (s *Store) ReadHistory(ctx context.Context, limit int) ([]metadata.Ending, error) {
	// The keys are in order of uuid, so etcd has to sort by revision.
	return readNewest[metadata.Ending](ctx, s, s.layout.Histories(), limit, clientv3.SortByModRevision)
}

// ReadAudit reads the last actions of operators, newest first, at most limit. Records that cannot be read are left out.
func (s *Store) ReadAudit(ctx context.Context, limit int) ([]protocol.Action, error) {
	return readNewest[protocol.Action](ctx, s, s.layout.Audits(), limit, clientv3.SortByKey)
}

// readNewest reads the newest documents of an area.
func readNewest[T metadata.Ending | protocol.Action](ctx context.Context, s *Store, area string, limit int,
	by clientv3.SortTarget) ([]T, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	resp, err := s.etcd.Get(ctx, area, clientv3.WithPrefix(), clientv3.WithSort(by, clientv3.SortDescend),
		clientv3.WithLimit(int64(limit)))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", area, err)
	}
	documents := make([]T, 0, len(resp.Kvs))
	for _, kv := range resp.Kvs {
		if document, err := protocol.Unmarshal[T](kv.Value); err == nil {
			documents = append(documents, document)
		}
	}
	return documents, nil
}

// DefaultHistoryMax is the default number of endings to keep.
const DefaultHistoryMax = 10_000

const (
	// trimKeys is how many endings are looked up at once. It is large, because etcd reads all of them each time.
	trimKeys = 10_000
	// trimPause lets lock holders go first: a transaction deletes at most 64 endings, and there are at most ten a
	// second.
	trimPause = 100 * time.Millisecond
)

// TrimHistory deletes all but the newest max endings, and returns how many it deleted. Several unlockers may trim at
// the same time. An ending that was rewritten meanwhile stays. It also works in an etcd that is out of space, and frees
// space there.
func (s *Store) TrimHistory(ctx context.Context, max int) (deleted int, err error) {
	for {
		oldest, err := s.oldestEndings(ctx, max)
		if err != nil || len(oldest) == 0 {
			return deleted, err
		}
		before := deleted
		for some := range slices.Chunk(oldest, maxBatchRemovals) {
			n, err := s.deleteEndings(ctx, some)
			if deleted += n; err != nil {
				return deleted, err
			}
			time.Sleep(trimPause)
		}
		if deleted == before { // another unlocker was faster
			return deleted, nil
		}
	}
}

// oldestEndings returns the excess endings, oldest first.
func (s *Store) oldestEndings(ctx context.Context, max int) ([]*mvccpb.KeyValue, error) {
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

func (s *Store) deleteEndings(ctx context.Context, keys []*mvccpb.KeyValue) (deleted int, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	txns := make([]locktxn.Txn, len(keys))
	for i, kv := range keys {
		txns[i] = locktxn.DeleteKey(string(kv.Key), kv.ModRevision)
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
