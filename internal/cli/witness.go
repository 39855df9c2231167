package cli

import (
	"context"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/locktxn"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// heedAtOnce is about how many records witnesses are asked in one transaction: two reads each, of 128.
const heedAtOnce = 60

// heed reads what witnesses say of the holds.
func (s *session) heed(ctx context.Context, records ...*metadata.Record) error {
	records = slices.DeleteFunc(slices.Clone(records), func(r *metadata.Record) bool {
		return !metadata.IsUUID(r.UUID) // and so the end of no key
	})
	for some := range slices.Chunk(records, heedAtOnce) {
		asking, cancel := s.request(ctx)
		var reads []clientv3.Op
		for _, r := range some {
			reads = append(reads, clientv3.OpGet(s.layout.Death(r.UUID)), clientv3.OpGet(s.layout.Suspicion(r.UUID)))
		}
		resp, err := s.client.Txn(asking).Then(reads...).Commit()
		cancel()
		if err != nil {
			return s.explain(ctx, "read what witnesses say of "+text.Visible(some[0].Name), err)
		}
		for i, r := range some {
			r.Heed(statement(r, locktxn.Keys(resp, 2*i)), statement(r, locktxn.Keys(resp, 2*i+1)))
		}
	}
	return nil
}

// statement is what was read of a statement about the hold; nil if there is none.
func statement(r *metadata.Record, read *clientv3.GetResponse) *metadata.Statement {
	if len(read.Kvs) == 0 {
		return nil
	}
	return protocol.ReadStatement(r.UUID, protocol.KV{Value: read.Kvs[0].Value, ModRevision: read.Kvs[0].ModRevision})
}

// endedWords say in a table that the holder has ended; empty when that is not proven.
func endedWords(r *metadata.Record, now time.Time) string {
	if !r.Proven() {
		return ""
	}
	return relative(protocol.EndedAt(r.Death), now)
}

// deathWords say what a proof of death is worth.
func deathWords(r *metadata.Record, now time.Time) string {
	words := protocol.HowItEnded(r.Death, now)
	switch {
	case r.Disputed():
		return words + ", but the holder called alive since: one of the two is wrong"
	case !r.Proven():
		return words + ", but the work outlives its process"
	}
	return words
}

// witness shows what witnesses say of the holder.
func (p *page) witness(r *metadata.Record) {
	for _, s := range []*metadata.Statement{r.Death, r.Suspicion} {
		if s == nil {
			continue
		}
		words := "suspected, not proven: " + protocol.HowItEnded(s, p.now)
		if s == r.Death {
			words = deathWords(r, p.now)
		}
		if s.How != "" {
			words += "; " + text.Prose(s.How)
		}
		p.fact("witness", words+" (witness "+shortText(s.By)+")")
	}
}
