package lockview

import (
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/clustermutex/unlocker/pkg/metadata"
)

// Why a list was read that no end of a watch caused.
const (
	ReasonStart    = "start"    // nothing was known yet
	ReasonPeriodic = "periodic" // to find what the watch missed
	ReasonList     = "list"     // the list before failed
)

// reasonOther is for ends of a watch that say no reason, or one that is not known here.
const reasonOther = "other"

// WatchReasons are the reasons that ends of a watch are counted by.
func WatchReasons() []string {
	return []string{
		"behind", "compacted", "connection", "no_leader", reasonOther, "permission", "silent", "slow", "token",
		"went_back",
	}
}

// Stats is what the view counted since it began.
type Stats struct {
	// Resyncs counts lists that were read, by reason: those of WatchReasons and the three above.
	Resyncs map[string]uint64
	// WatchRestarts counts ends of watches by WatchReasons.
	WatchRestarts map[string]uint64
	Puts, Deletes uint64 // events of the watch
	// MetadataErrors counts problems as they appeared in records, and foreign keys.
	MetadataErrors map[metadata.Reason]uint64
	// Healed counts locks that a periodic list found different from what the watch had told.
	Healed uint64
	// LastSync is when the picture was last known to be what etcd holds.
	LastSync time.Time
}

func newStats() Stats {
	s := Stats{Resyncs: map[string]uint64{}, WatchRestarts: map[string]uint64{},
		MetadataErrors: map[metadata.Reason]uint64{}}
	for _, reason := range WatchReasons() {
		s.Resyncs[reason], s.WatchRestarts[reason] = 0, 0
	}
	for _, reason := range []string{ReasonStart, ReasonPeriodic, ReasonList} {
		s.Resyncs[reason] = 0
	}
	for _, reason := range []metadata.Reason{
		metadata.ReasonMissing, metadata.ReasonBadTime, metadata.ReasonBadValue, metadata.ReasonTooLarge,
		metadata.ReasonBadName, metadata.ReasonUnknownLayout,
		metadata.ReasonLeftover,
	} {
		s.MetadataErrors[reason] = 0
	}
	return s
}

// Stats returns a copy of the counts. All reasons are there from the beginning.
func (v *View) Stats() Stats {
	v.mu.Lock()
	defer v.mu.Unlock()
	s := v.stats
	s.Resyncs, s.WatchRestarts, s.MetadataErrors = maps.Clone(s.Resyncs), maps.Clone(s.WatchRestarts), maps.Clone(s.MetadataErrors)
	return s
}

// count counts the problems that after has and before did not. The caller holds mu.
func (s *Stats) count(before, after *metadata.Record) {
	if after == nil {
		return
	}
	for _, p := range after.Problems {
		if before == nil || !slices.Contains(before.Problems, p) {
			s.MetadataErrors[p.Reason]++
		}
	}
}

func reasonOf(err error) string {
	var r interface{ Reason() string }
	if errors.As(err, &r) && slices.Contains(WatchReasons(), r.Reason()) {
		return r.Reason()
	}
	return reasonOther
}
