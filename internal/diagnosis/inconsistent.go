package diagnosis

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// InconsistencyKind is what is inconsistent, as in the metric label kind.
type InconsistencyKind string

// The kinds.
const (
	TooManyPermits InconsistencyKind = "too_many_permits" // more permits are out than any of the holders knew to exist
	// all of the lock is held beside shares, or permits beside readers
	MixedHolders InconsistencyKind = "mixed_holders"
	// a lock delay without a lease: it lasts until an operator ends it
	EndlessDelay InconsistencyKind = "endless_delay"
)

// InconsistencyKinds returns all kinds.
func InconsistencyKinds() []InconsistencyKind {
	return []InconsistencyKind{TooManyPermits, MixedHolders, EndlessDelay}
}

// Inconsistent is a lock that is inconsistent. Its name comes from clients.
type Inconsistent struct {
	Name string
	Kind InconsistencyKind
	Why  string // a predicate, such as "has 4 of 3 permits out"
}

// String returns a sentence with the name made visible.
func (l Inconsistent) String() string { return text.Visible(l.Name) + " " + l.Why }

// maxPermits bounds the permits of one holder, so that their sum does not overflow.
const maxPermits = 1_000_000_000

// usage is how much of a multi-holder lock its holders have.
type usage struct {
	permits, limit       int
	withPermits, readers int
	exclusive            bool // somebody holds all of it, too
}

// FindInconsistent returns the locks in a state that no client that follows the protocol leaves in etcd, by name: more
// holders than they allow, or a lock delay that never ends. Records outside the keys of any lock hold nothing.
func FindInconsistent(locks []*metadata.Record, delays []metadata.LockDelay) []Inconsistent {
	shared := map[string]*usage{}
	isHeld := func(r *metadata.Record) bool { return r.Token != 0 && !r.Misplaced }
	for _, r := range locks {
		if s := r.Share(); s.LockName != "" && isHeld(r) {
			if shared[s.LockName] == nil {
				shared[s.LockName] = &usage{}
			}
			shared[s.LockName].add(s)
		}
	}
	for _, r := range locks {
		if t := shared[r.Name]; t != nil && isHeld(r) {
			t.exclusive = true
		}
	}
	var found []Inconsistent
	for name, t := range shared {
		found = t.judge(found, name)
	}
	for _, d := range delays {
		if !d.Leased {
			found = append(found, Inconsistent{d.Name, EndlessDelay,
				"has a lock delay without a lease, which stays until an operator ends it"})
		}
	}
	slices.SortFunc(found, func(a, b Inconsistent) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), cmp.Compare(a.Kind, b.Kind))
	})
	return found
}

func (t *usage) add(s metadata.Share) {
	if s.Kind == metadata.KindShared {
		t.readers++
		return
	}
	t.withPermits++
	t.permits += min(s.Permits, maxPermits)
	t.limit = max(t.limit, s.Limit)
}

// judge adds what is inconsistent. Holders may know different limits, because a limit can be changed; the largest was
// valid at some time.
func (t *usage) judge(found []Inconsistent, name string) []Inconsistent {
	if t.limit > 0 && t.permits > t.limit {
		found = append(found,
			Inconsistent{name, TooManyPermits, fmt.Sprintf("has %d of %d permits out", t.permits, t.limit)})
	}
	switch {
	case t.exclusive:
		found = append(found, Inconsistent{name, MixedHolders,
			"is held as a whole beside " + text.Count(t.withPermits+t.readers, "share")})
	case t.withPermits > 0 && t.readers > 0:
		found = append(found,
			Inconsistent{name, MixedHolders, "has permits out beside " + text.Count(t.readers, "reader")})
	}
	return found
}
