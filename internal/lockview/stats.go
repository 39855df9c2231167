package lockview

import (
	"errors"
	"slices"
	"time"

	"github.com/clustermutex/unlocker/pkg/metadata"
)

// Reasons to list that are not the end of a watch.
const (
	ReasonStart    = "start"    // the first list
	ReasonPeriodic = "periodic" // to find what the watch may have missed
	ReasonList     = "list"     // the previous list failed
)

// reasonOther counts watches that ended without a reason, or with one not listed here.
const reasonOther = "other"

// WatchReasons returns the reasons under which ends of watches are counted.
func WatchReasons() []string {
	return []string{
		"behind", "compacted", "connection", "no_leader", reasonOther, "permission", "silent", "slow", "token",
		"went_back",
	}
}

// Stats counts what happened since the view was created.
type Stats struct {
	// Resyncs counts lists by reason: those of WatchReasons and the three above.
	Resyncs map[string]uint64
	// WatchRestarts counts ended watches by WatchReasons.
	WatchRestarts map[string]uint64
	Puts, Deletes uint64 // events of the watch
	// MetadataErrors counts problems of records, and foreign keys, when they appear.
	MetadataErrors map[metadata.Reason]uint64
	// Healed counts locks that a periodic list found to differ from what the watch had reported.
	Healed uint64
	// LastSync is when the snapshot was last known to be current.
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

// count counts the problems of after that before did not have. The caller holds mu.
func (s *Stats) count(before, after item) {
	if after.rec == nil {
		return
	}
	for _, p := range after.rec.Problems {
		if before.rec == nil || !slices.Contains(before.rec.Problems, p) {
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
