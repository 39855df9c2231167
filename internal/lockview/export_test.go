package lockview

import (
	"maps"
	"slices"
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
	return len(v.snap.statements.byKey)
}
