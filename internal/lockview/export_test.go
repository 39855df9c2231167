package lockview

import (
	"maps"
	"slices"
	"time"

	"github.com/clustermutex/unlocker/pkg/metadata"
)

// Records returns the kept presence records, whether their unlockers run or not, sorted by id.
func (v *View) Records() []unlocker {
	v.mu.Lock()
	defer v.mu.Unlock()
	all := make([]unlocker, 0, len(v.snap.unlockers))
	for _, instance := range slices.Sorted(maps.Keys(v.snap.unlockers)) {
		all = append(all, v.snap.unlockers[instance])
	}
	return all
}

// Statements returns how many statements are kept.
func (v *View) Statements() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return len(v.snap.stated.deaths) + len(v.snap.stated.suspicions)
}

// IdleAfterAChange reports whether a lock counts as idle that changed before that was noted.
func IdleAfterAChange() bool {
	var x index
	before, after := &held{Record: metadata.Record{Name: "a"}}, &held{Record: metadata.Record{Name: "a"}}
	x.put(item{rec: before})
	x.put(item{rec: after})
	x.noteIdle(item{rec: before, idleUntil: time.Minute})
	_, idle, _ := x.dueSoon(0)
	return idle > 0
}
