package lockstore

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/locktxn"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

const (
	// maxRanges is how many ranges of one record are deleted if foreign keys lie between its fields. The protocol's own
	// fields come first.
	maxRanges = 48
	// maxRangeKeys is how many keys of such a record are read.
	maxRangeKeys = 10_000
)

// prepareRemoval returns the removal with the ranges that it deletes. If foreign keys lie in the record's range, they
// must survive: the removal then names the ranges between them. (A holder that releases its lock deletes the whole
// range instead.)
func (s *Store) prepareRemoval(ctx context.Context, r lockrecord.Removal) (*locktxn.Removal, error) {
	next := &locktxn.Removal{Removal: r}
	if !r.Record.HasForeignKeys() {
		return next, nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	record := s.layout.Record(r.Record.Name)
	resp, err := s.etcd.Get(ctx, record, clientv3.WithPrefix(), clientv3.WithKeysOnly(),
		clientv3.WithLimit(maxRangeKeys))
	if err != nil {
		return nil, fmt.Errorf("read the keys of lock %q: %w", r.Record.Name, err)
	}
	next.Ranges = rangesToDelete(record, s.fieldRuns(resp.Kvs))
	return next, nil
}

// fieldRuns returns the ranges that contain fields and no foreign keys: one for each run of adjacent fields. The keys
// are sorted.
func (s *Store) fieldRuns(keys []*mvccpb.KeyValue) []protocol.Range {
	var runs []protocol.Range
	open := false // the last run may be extended
	for _, kv := range keys {
		key := string(kv.Key)
		if s.layout.Parse(key).Kind != protocol.KindField {
			open = false
			continue
		}
		if !open {
			runs, open = append(runs, protocol.Range{From: key}), true
		}
		runs[len(runs)-1].To = key + "\x00"
	}
	return runs
}

// rangesToDelete returns as many of the runs as one transaction can delete, beginning with those that make the lock
// held. The protocol's own fields are always included, even if there were too many keys to read them all.
func rangesToDelete(record string, runs []protocol.Range) []protocol.Range {
	var ranges []protocol.Range
	for _, field := range lockrecord.ReservedFields() {
		key := record + field
		contains := func(r protocol.Range) bool { return r.From <= key && key < r.To }
		if slices.ContainsFunc(ranges, contains) {
			continue
		}
		run := protocol.Range{From: key, To: key + "\x00"}
		if i := slices.IndexFunc(runs, contains); i >= 0 {
			run = runs[i]
		}
		ranges = append(ranges, run)
	}
	for _, run := range runs {
		if len(ranges) < maxRanges && !slices.Contains(ranges, run) {
			ranges = append(ranges, run)
		}
	}
	return ranges
}

// ListRecords calls each for the record of every lock whose name begins with prefix, in key order, at one revision,
// until each returns false. Every value is read once, and only a part of them is in memory at a time. The time spent in
// each does not count as silence of etcd, but if etcd compacts the revision meanwhile, the list fails. The witnesses'
// statements are read first, at the same revision.
func (s *Store) ListRecords(ctx context.Context, prefix string, each func(*metadata.Record) bool) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	stated := map[protocol.Key]*metadata.Statement{}
	enough := false
	records := protocol.RecordAssembler{Each: func(lock string, fields []metadata.Field, foreign []string) {
		if enough {
			return
		}
		r := lockrecord.DecodeRecord(lock, fields, foreign...)
		lockrecord.AttachStatements(&r, stated[protocol.Key{Kind: protocol.KindDeath, ID: r.UUID}],
			stated[protocol.Key{Kind: protocol.KindSuspicion, ID: r.UUID}])
		if enough = !each(&r); enough {
			stop()
		}
	}}
	add := func(kv protocol.KV) {
		key := s.layout.Parse(kv.Key)
		if key.Kind != protocol.KindDeath && key.Kind != protocol.KindSuspicion {
			records.Add(key, kv)
		} else if st := protocol.DecodeStatement(key.ID, kv); st != nil {
			stated[key] = st
		}
	}
	areas := []protocol.Range{{From: s.layout.Deaths(), To: protocol.End(s.layout.Deaths())},
		{From: s.layout.Suspicions(), To: protocol.End(s.layout.Suspicions())}}
	revision := int64(0)
	for _, r := range append(areas, s.layout.Records(prefix)...) {
		newest, err := s.readRange(ctx, r, revision, add)
		if err == nil {
			records.Flush()
		}
		if enough {
			return nil
		}
		if err != nil {
			return fmt.Errorf("list %s: %w", s.layout.Prefix(), err)
		}
		revision = cmp.Or(revision, newest)
	}
	return nil
}
