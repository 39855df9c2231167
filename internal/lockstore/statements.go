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

// State records the proof that the holder of a hold has ended. It also returns nil if that was stated before. The error
// wraps [metadata.ErrChanged] if the hold is over or was detached from its process, so that there is nothing to state.
// After any other error, call it again with the same statement.
func (s *Store) State(ctx context.Context, statement metadata.Statement) error {
	if err := s.witness(ctx, statement, locktxn.PutProof); err != nil {
		return fmt.Errorf("state that the holder of %q has ended: %w", statement.Name, err)
	}
	return nil
}

// Suspect records that the holder of a hold has probably ended. Its errors are those of [Store.State]; it returns nil
// and changes nothing if the end is proven already.
func (s *Store) Suspect(ctx context.Context, statement metadata.Statement) error {
	if err := s.witness(ctx, statement, locktxn.PutSuspicion); err != nil {
		return fmt.Errorf("state the suspicion that the holder of %q has ended: %w", statement.Name, err)
	}
	return nil
}

// Dispel withdraws the suspicion about the hold with this uuid, if there is one.
func (s *Store) Dispel(ctx context.Context, uuid string) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if _, err := locktxn.DeleteSuspicion(s.layout, uuid).Commit(ctx, s.etcd); err != nil {
		return fmt.Errorf("withdraw the suspicion about the hold %s: %w", uuid, err)
	}
	return nil
}

// ProveWitness returns an error if etcd would refuse statements. It changes nothing. The uuid must be that of no hold.
func (s *Store) ProveWitness(ctx context.Context, uuid string) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err := locktxn.CheckWitnessRights(s.layout, uuid).Commit(ctx, s.etcd)
	return err
}

// witness sends a statement. If its lease was revoked meanwhile, it is sent once more, with another lease.
func (s *Store) witness(ctx context.Context, statement metadata.Statement,
	build func(l protocol.Layout, s metadata.Statement, lease clientv3.LeaseID) locktxn.Txn) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	for try := 0; ; try++ {
		lease, err := s.statements.current(ctx, 1)
		if err != nil {
			return err
		}
		resp, err := build(s.layout, statement, lease).Commit(ctx, s.etcd)
		switch {
		case locktxn.IsLeaseGone(err) && try == 0:
			s.statements.discard(lease)
		case err != nil:
			return err
		case resp.Succeeded:
			return nil
		default:
			return stated(resp, statement)
		}
	}
}

// stated returns nil if the hold stands and the end of its holder was stated before.
func stated(resp *clientv3.TxnResponse, statement metadata.Statement) error {
	for _, kv := range locktxn.Keys(resp, 0).Kvs {
		if string(kv.Value) == statement.UUID && kv.CreateRevision == statement.Token &&
			len(locktxn.Keys(resp, 1).Kvs) > 0 {
			return nil
		}
	}
	return metadata.ErrChanged
}

// holdsAtOnce is how many holds one request asks about: each takes two of the 128 operations that etcd allows.
const holdsAtOnce = 60

// ApplyStatements reads the witnesses' statements about these holds and sets them in the records.
func (s *Store) ApplyStatements(ctx context.Context, records ...*metadata.Record) error {
	records = slices.DeleteFunc(slices.Clone(records), func(r *metadata.Record) bool {
		return !metadata.IsUUID(r.UUID) // and therefore in no key
	})
	for some := range slices.Chunk(records, holdsAtOnce) {
		if err := s.applyStatements(ctx, some); err != nil {
			return fmt.Errorf("read the statements about lock %q: %w", some[0].Name, err)
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

// statement returns the statement about the hold that was read; nil if there is none.
func statement(r *metadata.Record, read *clientv3.GetResponse) *metadata.Statement {
	if len(read.Kvs) == 0 {
		return nil
	}
	return protocol.ReadStatement(r.UUID, locktxn.KV(read.Kvs[0]))
}
