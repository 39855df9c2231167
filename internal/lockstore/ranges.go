package lockstore

import (
	"context"
	"fmt"
	"slices"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/locktxn"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

const (
	// maxRanges is how many ranges of one record are deleted where foreign keys lie between its fields. The first ones
	// are those that matter.
	maxRanges = 48
	// maxSpared is how many keys of such a record are looked at.
	maxSpared = 10_000
)

// prepare looks which keys to delete where not all of the record's range is the record's.
func (s *Store) prepare(ctx context.Context, r metadata.Removal) (*locktxn.Removal, error) {
	next := &locktxn.Removal{Removal: r}
	if !r.Record.Foreign() {
		return next, nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	record := s.layout.Record(r.Record.Name)
	resp, err := s.etcd.Get(ctx, record, clientv3.WithPrefix(), clientv3.WithKeysOnly(), clientv3.WithLimit(maxSpared))
	if err != nil {
		return nil, fmt.Errorf("read the keys of lock %q: %w", r.Record.Name, err)
	}
	runs := s.runs(resp.Kvs)
	if len(runs) == 0 && !resp.More {
		return nil, metadata.ErrChanged
	}
	next.Ranges = important(record, runs)
	return next, nil
}

// runs returns the ranges of keys, which are in order, that hold fields and nothing else: one between each two foreign
// keys that have fields between them.
func (s *Store) runs(keys []*mvccpb.KeyValue) []locktxn.Range {
	var runs []locktxn.Range
	open := false // the last run goes on
	for _, kv := range keys {
		key := string(kv.Key)
		if s.layout.Parse(key).Kind != metadata.KindField {
			open = false
			continue
		}
		if !open {
			runs, open = append(runs, locktxn.Range{From: key}), true
		}
		runs[len(runs)-1].To = key + "\x00"
	}
	return runs
}

// important returns as many of the runs as one transaction can delete, first those without which nobody holds the lock.
// What the runs do not tell of, because the keys were too many to look at, it names by itself.
func important(record string, runs []locktxn.Range) []locktxn.Range {
	var ranges []locktxn.Range
	for _, field := range []string{metadata.FieldUUID, metadata.FieldAlertAt, metadata.FieldAutoUnlockAt,
		metadata.FieldAlive, metadata.FieldMetadata} {
		key := record + field
		holds := func(r locktxn.Range) bool { return r.From <= key && key < r.To }
		if slices.ContainsFunc(ranges, holds) {
			continue
		}
		run := locktxn.Range{From: key, To: key + "\x00"}
		if i := slices.IndexFunc(runs, holds); i >= 0 {
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
