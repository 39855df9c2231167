package lockview

import (
	"time"

	"github.com/clustermutex/unlocker/internal/diagnosis"
	"github.com/clustermutex/unlocker/internal/locks"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

// Snapshots returns the read model of the view. policy returns how locks are judged; if nil, as the running unlockers
// publish it.
func (v *View) Snapshots(policy func() diagnosis.CombinedPolicy) *locks.Snapshots {
	if policy == nil {
		policy = func() diagnosis.CombinedPolicy {
			return diagnosis.CombinePolicies(protocol.Presences(v.Unlockers()))
		}
	}
	return locks.NewSnapshots(locks.Source{Locks: v.RecordsWithMisplaced, Queues: v.Queues, Delays: v.Delays,
		Unclaimed: v.unclaimed, Leased: v.opt.Leased, Combined: policy, Clock: v.Clock})
}

// Judge returns the read model of some records alone: held ones by name, or those of ended holds.
func (v *View) Judge(records []*metadata.Record, policy diagnosis.CombinedPolicy, now time.Time) *locks.Snapshot {
	return locks.Build(locks.Input{Locks: records, Queues: v.Queues(), Combined: policy},
		staleness.Moment{Wall: now, Mono: v.Clock()})
}

// unclaimed returns the locks that no waiter takes. It remembers which ones it has reported, so that an interruption of
// the watch does not end an alert.
func (v *View) unclaimed() []diagnosis.Unclaimed {
	seen := diagnosis.FreeLocks{}
	if seen.Free, seen.Followed, seen.Synced = v.Free(); len(seen.Free) > 0 {
		seen.Queues = v.Queues()
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	seen.Now = v.Clock()
	seen.Wall = time.Now()
	v.reported = diagnosis.FindUnclaimed(v.reported, seen)
	return v.reported
}
