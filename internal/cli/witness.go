package cli

import (
	"context"
	"time"

	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// applyStatements reads what witnesses say of the holds, and sets it in their records.
func (s *session) applyStatements(ctx context.Context, records ...*metadata.Record) error {
	request, cancel := s.request(ctx)
	defer cancel()
	if err := s.store.ApplyStatements(request, records...); err != nil {
		return s.explain(ctx, "read what witnesses say of "+text.Visible(records[0].Name), err)
	}
	return nil
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
		switch {
		case s == r.Death:
			words = deathWords(r, p.now)
		case s.Cause == metadata.CauseCommandLives:
			words = protocol.HowItEnded(s, p.now)
		}
		if s.How != "" {
			words += "; " + text.Prose(s.How)
		}
		p.fact("witness", words+" (witness "+shortText(s.By)+")")
	}
}
