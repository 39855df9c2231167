// Package inconsistent finds what no client that follows the protocol leaves in etcd: more holders of a lock than it
// allows, and lock delays that never end. Check, metric and page use the same function.
package inconsistent

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// Kind is what is inconsistent; these are the values of the metric label kind.
type Kind string

// The kinds.
const (
	Oversold Kind = "oversold"      // more permits are out than any of the holders knew to exist
	Beside   Kind = "beside"        // the whole lock is held beside shares of it, or permits beside readers
	Endless  Kind = "endless_delay" // a lock delay without a lease: it lasts until an operator ends it
)

// Kinds returns all kinds.
func Kinds() []Kind { return []Kind{Oversold, Beside, Endless} }

// Lock is a lock that is inconsistent. Its name comes from clients.
type Lock struct {
	Name string
	Kind Kind
	Why  string // a predicate, such as "has 4 of 3 permits out"
}

// String is a sentence with the name made visible.
func (l Lock) String() string { return text.Visible(l.Name) + " " + l.Why }

// maxPermits bounds the permits of one holder, so that their sum does not overflow.
const maxPermits = 1_000_000_000

// taken is how a lock is held that several hold.
type taken struct {
	permits, limit       int
	withPermits, readers int
	whole                bool // somebody holds all of it, too
}

// Find returns the locks that are inconsistent, by name. held are the names and attributes of the locks that somebody
// holds, delays the lock delays.
func Find(held iter.Seq2[string, map[string]any], delays []metadata.LockDelay) []Lock {
	shared := map[string]*taken{}
	for name, attributes := range held {
		if s := metadata.ShareFromAttributes(name, attributes); s.LockName != "" {
			if shared[s.LockName] == nil {
				shared[s.LockName] = &taken{}
			}
			shared[s.LockName].add(s)
		}
	}
	if len(shared) > 0 {
		for name := range held {
			if t := shared[name]; t != nil {
				t.whole = true
			}
		}
	}
	var found []Lock
	for name, t := range shared {
		found = t.judge(found, name)
	}
	for _, d := range delays {
		if !d.Leased {
			found = append(found, Lock{d.Name, Endless,
				"has a lock delay without a lease, which stays until an operator ends it"})
		}
	}
	slices.SortFunc(found, func(a, b Lock) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), cmp.Compare(a.Kind, b.Kind))
	})
	return found
}

func (t *taken) add(s metadata.Share) {
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
func (t *taken) judge(found []Lock, name string) []Lock {
	if t.limit > 0 && t.permits > t.limit {
		found = append(found, Lock{name, Oversold, fmt.Sprintf("has %d of %d permits out", t.permits, t.limit)})
	}
	switch {
	case t.whole:
		found = append(found, Lock{name, Beside,
			"is held as a whole beside " + text.Count(t.withPermits+t.readers, "share")})
	case t.withPermits > 0 && t.readers > 0:
		found = append(found, Lock{name, Beside, "has permits out beside " + text.Count(t.readers, "reader")})
	}
	return found
}
