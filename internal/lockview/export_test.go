package lockview

import (
	"maps"
	"slices"
)

// Records returns what is kept of the unlockers' records, whether they run or not, sorted by id.
func (v *View) Records() []Unlocker {
	v.mu.Lock()
	defer v.mu.Unlock()
	all := make([]Unlocker, 0, len(v.pic.unlockers))
	for _, instance := range slices.Sorted(maps.Keys(v.pic.unlockers)) {
		all = append(all, v.pic.unlockers[instance])
	}
	return all
}
