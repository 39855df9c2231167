package lockview

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// maxSilence is how long the snapshot counts as current without a sign of life from etcd.
const maxSilence = 10 * time.Second

// state is the freshness as it was last noted.
type state protocol.Freshness

func (s state) at(now time.Time) protocol.Freshness {
	if quiet := now.Sub(s.HeardAt); s.Synced && quiet > maxSilence {
		s.Synced = false
		s.SyncedChangedAt = s.HeardAt.Add(maxSilence)
		s.Cause = fmt.Sprintf("nothing heard from etcd for %v", quiet.Round(time.Second))
	}
	return protocol.Freshness(s)
}

// hear notes a sign of life at a revision.
func (s *state) hear(revision int64) {
	s.HeardAt = time.Now()
	s.Revision = revision
	if s.FirstRevision == 0 {
		s.FirstRevision = revision
	}
	s.HighestRevision = max(s.HighestRevision, revision)
}

// sync notes that the snapshot is current.
func (s *state) sync() {
	if !s.Synced {
		s.Synced = true
		s.SyncedChangedAt = time.Now()
		s.Cause = ""
	}
}

// lose notes that the snapshot no longer follows etcd, and reports whether that is news: an outage is, each further
// attempt in it is not.
func (s *state) lose(cause string) (news bool) {
	if s.Synced {
		s.SyncedChangedAt = time.Now()
	}
	news = s.Synced || s.Cause != cause
	s.Synced = false
	s.Cause = cause
	return news
}

// Reasons to list other than the end of a watch.
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
	MetadataErrors map[metadata.ProblemKind]uint64
	// Corrected counts locks that a periodic list found to differ from what the watch had reported.
	Corrected uint64
}

func newStats() Stats {
	s := Stats{Resyncs: map[string]uint64{}, WatchRestarts: map[string]uint64{},
		MetadataErrors: map[metadata.ProblemKind]uint64{}}
	for _, reason := range WatchReasons() {
		s.WatchRestarts[reason] = 0
	}
	for _, reason := range append(WatchReasons(), ReasonStart, ReasonPeriodic, ReasonList) {
		s.Resyncs[reason] = 0
	}
	for _, reason := range []metadata.ProblemKind{
		metadata.ProblemMissing, metadata.ProblemBadTime, metadata.ProblemBadValue, metadata.ProblemTooLarge,
		metadata.ProblemBadName, metadata.ProblemUnknownLayout, metadata.ProblemLeftover,
	} {
		s.MetadataErrors[reason] = 0
	}
	return s
}

// count counts the problems of after that before did not have. The caller holds mu.
func (s *Stats) count(before, after *held) {
	if after == nil {
		return
	}
	for _, p := range after.Problems {
		if before == nil || !slices.Contains(before.Problems, p) {
			s.MetadataErrors[p.Kind]++
		}
	}
}

// copied returns a copy that nobody writes to.
func (s *Stats) copied() Stats {
	c := *s
	c.Resyncs = maps.Clone(s.Resyncs)
	c.WatchRestarts = maps.Clone(s.WatchRestarts)
	c.MetadataErrors = maps.Clone(s.MetadataErrors)
	return c
}

func reasonOf(err error) string {
	var r interface{ Reason() string }
	if errors.As(err, &r) && slices.Contains(WatchReasons(), r.Reason()) {
		return r.Reason()
	}
	return reasonOther
}

// touched is the keys that the watch reported while a list was being read: of a record or a queue, the lock. The list
// may show them before or after the change.
type touched map[protocol.Key]bool
