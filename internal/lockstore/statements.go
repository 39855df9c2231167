package lockstore

import (
	"context"
	"fmt"
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/locktxn"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// RecordProof writes a witness's proof that the holder of a hold has ended. It also returns nil if that was stated
// before. The error wraps [metadata.ErrChanged] if the hold is over or was detached from its process, so that there is
// nothing to state. After any other error, call it again with the same statement.
func (s *Store) RecordProof(ctx context.Context, statement metadata.Statement) error {
	if err := s.recordStatement(ctx, statement, locktxn.PutProof); err != nil {
		return fmt.Errorf("state that the holder of %q has ended: %w", statement.Name, err)
	}
	return nil
}

// RecordSuspicion writes a witness's suspicion that the holder of a hold has ended. Its errors are those of
// [Store.RecordProof]; it returns nil and changes nothing if the end is proven already.
func (s *Store) RecordSuspicion(ctx context.Context, statement metadata.Statement) error {
	if err := s.recordStatement(ctx, statement, locktxn.PutSuspicion); err != nil {
		return fmt.Errorf("state the suspicion that the holder of %q has ended: %w", statement.Name, err)
	}
	return nil
}

// WithdrawSuspicion deletes the suspicion about the hold with this uuid, if there is one.
func (s *Store) WithdrawSuspicion(ctx context.Context, uuid string) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if _, err := locktxn.DeleteSuspicion(s.layout, uuid).Commit(ctx, s.etcd); err != nil {
		return fmt.Errorf("withdraw the suspicion about the hold %s: %w", uuid, err)
	}
	return nil
}

// CheckWitnessRights returns an error if this client's user may not write statements. It changes nothing. The uuid must
// be that of no hold.
func (s *Store) CheckWitnessRights(ctx context.Context, uuid string) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err := locktxn.CheckWitnessRights(s.layout, uuid).Commit(ctx, s.etcd)
	return err
}

func (s *Store) recordStatement(ctx context.Context, statement metadata.Statement,
	build func(l protocol.Layout, s metadata.Statement, lease clientv3.LeaseID) locktxn.Txn) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	resp, err := s.statements.commitWithLease(ctx, 1, func(lease clientv3.LeaseID) (*clientv3.TxnResponse, error) {
		return build(s.layout, statement, lease).Commit(ctx, s.etcd)
	})
	if err != nil || resp.Succeeded {
		return err
	}
	// the hold may stand, with a proof that was written before
	for _, kv := range locktxn.Keys(resp, 0).Kvs {
		if string(kv.Value) == statement.UUID && kv.CreateRevision == statement.Token &&
			len(locktxn.Keys(resp, 1).Kvs) > 0 {
			return nil
		}
	}
	return metadata.ErrChanged
}

// maxHoldsPerRead is how many holds one request reads statements about: each takes two of the 128 operations that etcd
// allows.
const maxHoldsPerRead = 60

// applyStatements reads the witnesses' statements about these holds and sets them in the records.
func (s *Store) applyStatements(ctx context.Context, records []*metadata.Record) error {
	records = slices.DeleteFunc(slices.Clone(records), func(r *metadata.Record) bool {
		return !metadata.IsUUID(r.UUID) // and therefore in no key
	})
	for some := range slices.Chunk(records, maxHoldsPerRead) {
		var reads []clientv3.Op
		for _, r := range some {
			reads = append(reads, clientv3.OpGet(s.layout.Death(r.UUID)), clientv3.OpGet(s.layout.Suspicion(r.UUID)))
		}
		call, cancel := context.WithTimeout(ctx, callTimeout)
		resp, err := s.etcd.Txn(call).Then(reads...).Commit()
		cancel()
		if err != nil {
			return fmt.Errorf("read the statements about lock %q: %w", some[0].Name, err)
		}
		for i, r := range some {
			lockrecord.AttachStatements(r, readStatement(r, resp, 2*i), readStatement(r, resp, 2*i+1))
		}
	}
	return nil
}

// readStatement returns the statement about the hold that operation op read; nil if there is none.
func readStatement(r *metadata.Record, resp *clientv3.TxnResponse, op int) *metadata.Statement {
	if read := locktxn.Keys(resp, op); len(read.Kvs) > 0 {
		return protocol.DecodeStatement(r.UUID, locktxn.KV(read.Kvs[0]))
	}
	return nil
}
