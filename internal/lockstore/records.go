package lockstore

import (
	"context"
	"fmt"

	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// Records calls each for the record of every lock whose name begins with prefix, in key order, as of the revision that
// it returns, until each returns false. Every value is read once, and no more than a part of them is in memory. Time
// that each takes does not count as silence of etcd, but if it takes so long that etcd compacts the revision, the list
// fails. What witnesses say is read first, at the same revision.
func (s *Store) Records(ctx context.Context, prefix string, each func(*metadata.Record) bool) (int64, error) {
	revision, err := s.records(ctx, prefix, each)
	if err != nil {
		return 0, fmt.Errorf("list %s: %w", s.layout.Prefix(), err)
	}
	return revision, nil
}

func (s *Store) records(ctx context.Context, prefix string, each func(*metadata.Record) bool) (int64, error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	stated := map[protocol.Key]*metadata.Statement{}
	revision := int64(0)
	for _, area := range []string{s.layout.Deaths(), s.layout.Suspicions()} {
		newest, err := s.read(ctx, keyRange{area, protocol.End(area)}, revision, func(kv protocol.KV) {
			key := s.layout.Parse(kv.Key)
			if st := protocol.ReadStatement(key.ID, kv); st != nil {
				stated[key] = st
			}
		})
		if err != nil {
			return 0, err
		}
		if revision == 0 {
			revision = newest
		}
	}
	enough := false
	g := protocol.Gatherer{Each: func(lock string, fields []metadata.Field, foreign []string) {
		if enough {
			return
		}
		r := metadata.DecodeRecord(lock, fields, foreign...)
		r.Heed(stated[protocol.Key{Kind: protocol.KindDeath, ID: r.UUID}],
			stated[protocol.Key{Kind: protocol.KindSuspicion, ID: r.UUID}])
		if !each(&r) {
			enough = true
			stop()
		}
	}}
	for _, part := range s.namesWith(prefix) {
		_, err := s.read(ctx, part, revision, func(kv protocol.KV) { g.Take(s.layout.Parse(kv.Key), kv) })
		if err == nil {
			g.Flush()
		}
		if enough {
			return revision, nil
		}
		if err != nil {
			return 0, err
		}
	}
	return revision, nil
}

// namesWith are the ranges with the records of all locks whose names begin with prefix.
func (s *Store) namesWith(prefix string) []keyRange {
	if prefix == "" {
		var all []keyRange
		for _, r := range s.layout.Records() {
			all = append(all, keyRange{r[0], r[1]})
		}
		return all
	}
	from := s.layout.Prefix() + protocol.EncodeName(prefix)
	return []keyRange{{from, protocol.End(from)}}
}
