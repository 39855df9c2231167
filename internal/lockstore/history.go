package lockstore

import (
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// Ending reads how the hold with this uuid (see [metadata.Record.HistoryID]) ended, if its holder did not end it. It
// returns nil if nothing is recorded: the hold was released, is still there, or ended long ago.
func (s *Store) Ending(ctx context.Context, uuid string) (*metadata.Ending, error) {
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

// History reads the endings of the last holds that their holders did not end, newest first, at most limit. Records that
// cannot be read are left out.
func (s *Store) History(ctx context.Context, limit int) ([]metadata.Ending, error) {
	// The keys are in order of uuid, so etcd has to sort by revision.
	return newest[metadata.Ending](ctx, s, s.layout.Histories(), limit, clientv3.SortByModRevision)
}

// Audit reads the last actions of operators, newest first, at most limit. Records that cannot be read are left out.
func (s *Store) Audit(ctx context.Context, limit int) ([]protocol.Action, error) {
	return newest[protocol.Action](ctx, s, s.layout.Audits(), limit, clientv3.SortByKey)
}

func newest[T metadata.Ending | protocol.Action](ctx context.Context, s *Store, area string, limit int,
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
