package lockstore

import (
	"context"
	"fmt"
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/locktxn"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// holdsAtOnce is how many holds one request asks about, with two of the 128 operations that etcd allows for each.
const holdsAtOnce = 60

// ApplyStatements reads what witnesses say of these holds, and sets it in their records.
func (s *Store) ApplyStatements(ctx context.Context, records ...*metadata.Record) error {
	records = slices.DeleteFunc(slices.Clone(records), func(r *metadata.Record) bool {
		return !metadata.IsUUID(r.UUID) // and so the end of no key
	})
	for some := range slices.Chunk(records, holdsAtOnce) {
		if err := s.applyStatements(ctx, some); err != nil {
			return fmt.Errorf("read what witnesses say of lock %q: %w", some[0].Name, err)
		}
	}
	return nil
}

func (s *Store) applyStatements(ctx context.Context, records []*metadata.Record) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var reads []clientv3.Op
	for _, r := range records {
		reads = append(reads, clientv3.OpGet(s.layout.Death(r.UUID)), clientv3.OpGet(s.layout.Suspicion(r.UUID)))
	}
	resp, err := s.etcd.Txn(ctx).Then(reads...).Commit()
	if err != nil {
		return err
	}
	for i, r := range records {
		r.Heed(statement(r, locktxn.Keys(resp, 2*i)), statement(r, locktxn.Keys(resp, 2*i+1)))
	}
	return nil
}

// statement is what was read of a statement about the hold; nil if there is none.
func statement(r *metadata.Record, read *clientv3.GetResponse) *metadata.Statement {
	if len(read.Kvs) == 0 {
		return nil
	}
	return protocol.ReadStatement(r.UUID, keyValue(read.Kvs[0]))
}
