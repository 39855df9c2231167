package locks

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

// LeasedState is the state of a lock of another library: keys that etcd deletes with their leases. No deadline and no
// holder is known of it, so it is never judged, and nothing of ours removes it.
const LeasedState metadata.State = "leased"

// Leased is what is known of a lock of another library that ours do not have. Its record has the holder's value as the
// owner, and no more of the holder.
type Leased struct {
	Key     string            // of the holder; the lock's name if it is one key with a lease, which need not be a lock
	Lease   protocol.Lease    // with which the lock ends
	Waiters []metadata.Waiter // their ids are their leases
}

// NewLeasedRow returns the row of a lock of another library.
func NewLeasedRow(r *metadata.Record, l *Leased) *Row {
	return &Row{Record: r, WaitSummary: &WaitSummary{Waiters: len(l.Waiters)}, Leased: l, Display: LeasedState,
		Class: ClassLeased, Judgement: staleness.Judgement{State: LeasedState},
		Fingerprint: Hash(xxhash.Sum64String(l.Key), uint64(r.Token), uint64(l.Lease.Expires.Unix()),
			uint64(len(l.Waiters)), xxhash.Sum64String(r.Owner))}
}

// maxWaiters is how many waiters for a lock of another library are among its facts.
const maxWaiters = 50

// Fact is something that is known of a lock, in words. The value says what the command does, if there is one.
type Fact struct{ Label, Command, Value string }

// LeasedFacts returns what is known of a lock of another library, and what is not.
func (r *Row) LeasedFacts(now time.Time) []Fact {
	l := r.Leased
	kind := "leased: another lock library holds it; unlockers never remove it"
	if l.Key == r.Name {
		kind = "leased: one key with a lease, a lock or something registered"
	}
	since := "unknown: etcd stores no time"
	switch {
	case !r.LockedAt.IsZero():
		since = r.LockedAt.UTC().Format(time.DateTime+" UTC") + " (" + text.Relative(r.LockedAt, now) + ")"
	case now.Sub(r.SeenAt) >= time.Second:
		since = "at least " + text.Age(r.SeenAt, now) + " ago: etcd stores no time"
	}
	lease := "time unknown: " + cmp.Or(l.Lease.Why, "not read lately")
	if l.Lease.Expires.After(now) {
		lease = fmt.Sprintf("for %s, kept alive %s, ends %s with %s unless it is kept alive again",
			text.Duration(l.Lease.TTL), text.Relative(l.Lease.Expires.Add(-l.Lease.TTL), now),
			text.Relative(l.Lease.Expires, now), text.Count(l.Lease.Keys, "key"))
	}
	facts := []Fact{{"state", "", kind}, {"value", "", cmp.Or(r.Owner, "no text")}, {"key", "", l.Key},
		{"since", "", since}, {"lease", "", fmt.Sprintf("%x, %s", l.Lease.ID, lease)},
		{"to end it", fmt.Sprintf("etcdctl lease revoke %x", l.Lease.ID),
			"which deletes all keys of that session; the holder is not stopped"}}
	for i, w := range l.Waiters[:min(len(l.Waiters), maxWaiters)] {
		facts = append(facts, Fact{fmt.Sprintf("waiting, %d of %d", i+1, len(l.Waiters)), "",
			cmp.Or(w.Owner, "no text") + ", lease " + w.ID})
	}
	return facts
}

// LeasedNamed returns the locks of other libraries with this name: a queue, a single key, or both.
func (s *Snapshot) LeasedNamed(name string) []*Row {
	return slices.DeleteFunc(slices.Clone(s.Leased), func(r *Row) bool { return r.Name != name })
}

func (s *Snapshot) allRows() []*Row { return append(slices.Clip(s.Rows), s.Leased...) }
