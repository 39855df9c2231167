package lockview

import (
	"time"

	"github.com/clustermutex/unlocker/internal/diagnosis"
	"github.com/clustermutex/unlocker/internal/locks"
	"github.com/clustermutex/unlocker/internal/protocol"
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
