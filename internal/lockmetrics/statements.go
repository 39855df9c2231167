package lockmetrics

import (
	"cmp"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// The kinds of statements, as values of a label.
const (
	kindDeath     = "death"
	kindSuspicion = "suspicion"
)

// witnessOther counts witnesses that are none of the protocol's, whatever they call themselves.
const witnessOther = "other"

// statements sums up what witnesses say of held locks.
type statements struct {
	counts   [2]map[string]int // of deaths and of suspicions, by witness
	disputed int
	ended    shortlist // locks whose holder is proven to have ended
}

func (s *statements) add(j judged) {
	for i, st := range []*metadata.Statement{j.record.Death, j.record.Suspicion} {
		if st == nil {
			continue
		}
		if s.counts[i] == nil {
			s.counts[i] = map[string]int{}
		}
		switch st.Witness {
		case metadata.WitnessHost, metadata.WitnessKubernetes:
			s.counts[i][st.Witness]++
		default:
			s.counts[i][witnessOther]++
		}
	}
	if j.record.Disputed() {
		s.disputed++
	}
	if j.record.Proven() {
		s.ended.offer(j)
	}
}

// statements exports what witnesses say.
func (c *Collector) statements(ch chan<- prometheus.Metric, s *statements) {
	for i, kind := range []string{kindDeath, kindSuspicion} {
		for _, witness := range []string{metadata.WitnessHost, metadata.WitnessKubernetes, witnessOther} {
			gauge(ch, c.d.statements, float64(s.counts[i][witness]), kind, witness)
		}
	}
	gauge(ch, c.d.disputed, float64(s.disputed))
	if c.c.Series == SeriesNone {
		return
	}
	taken := map[string]bool{}
	for _, j := range s.ended.best() {
		name := text.NameLabel(j.record.Name)
		if taken[name] {
			continue
		}
		taken[name] = true
		death := j.record.Death
		at := cmp.Or(death.EndedAt.Time, death.At.Time, j.verdict.AbandonedAt)
		instant(ch, c.d.holderEnded, at, c.holder(j.record, death.Cause)...)
	}
}
