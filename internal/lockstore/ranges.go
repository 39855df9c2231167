package lockstore

import (
	"context"
	"fmt"
	"slices"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/locktxn"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

const (
	// maxRanges is how many ranges of one record are deleted if foreign keys lie between its fields. Those that matter
	// come first.
	maxRanges = 48
	// maxRangeKeys is how many keys of such a record are read.
	maxRangeKeys = 10_000
)

// prepare returns the removal to send. If foreign keys lie in the record's range, they must survive: the removal then
// names the ranges between them. (A holder that releases its lock deletes the whole range instead.)
func (s *Store) prepare(ctx context.Context, r metadata.Removal) (*locktxn.Removal, error) {
	next := &locktxn.Removal{Removal: r}
	if !r.Record.Foreign() {
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
	runs := s.fieldRuns(resp.Kvs)
	if len(runs) == 0 && !resp.More {
		return nil, metadata.ErrChanged
	}
	next.Ranges = rangesToDelete(record, runs)
	return next, nil
}

// fieldRuns returns the ranges that hold fields and no foreign keys: one for each run of adjacent fields. The keys are
// sorted.
func (s *Store) fieldRuns(keys []*mvccpb.KeyValue) []locktxn.Range {
	var runs []locktxn.Range
	open := false // the last run may be extended
	for _, kv := range keys {
		key := string(kv.Key)
		if s.layout.Parse(key).Kind != protocol.KindField {
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

// rangesToDelete returns as many of the runs as one transaction can delete, first those that make the lock held. The
// protocol's own fields are always included, even if there were too many keys to read them all.
func rangesToDelete(record string, runs []locktxn.Range) []locktxn.Range {
	var ranges []locktxn.Range
	for _, field := range metadata.ReservedFields() {
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
