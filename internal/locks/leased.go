package locks

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

// LeasedState is the state of a lock of another library: keys that etcd deletes with their leases. No deadline and no
// holder is known of it, so it is never judged, and nothing of ours removes it.
const LeasedState metadata.State = "leased"

// Leased is a lock of another library.
type Leased struct {
	Name    string
	Single  bool      // one key with a lease, which need not be a lock
	Key     string    // of the holder
	Value   string    // of that key, if it is text
	Token   int64     // create revision of the key
	Since   time.Time // when it was seen to be taken; zero = before it was watched
	Seen    time.Time // when it was first seen
	Lease   Lease
	Waiters []metadata.Waiter
}

// Lease is the lease with which the lock of another library ends.
type Lease struct {
	ID      int64
	ReadAt  time.Time // zero = not yet
	TTL     time.Duration
	Expires time.Time // when it ends unless it is kept alive; zero = unknown
	Keys    int       // that end with it
	Why     string    // its time is unknown
}

// HeldSince returns since when the lock has been held at least.
func (l *Leased) HeldSince() time.Time { return cmp.Or(l.Since, l.Seen) }

// Fact is something that is known of a lock, in words.
type Fact struct {
	Label, Text string
	Command     string // to which Text adds what it does
}

// Facts returns what is known of the lock, and what is not.
func (l *Leased) Facts(now time.Time) []Fact {
	kind := "leased: another lock library holds it; nothing here ends it"
	if l.Single {
		kind = "leased: one key with a lease, a lock or something registered"
	}
	since := "unknown: etcd stores no time"
	switch {
	case !l.Since.IsZero():
		since = l.Since.UTC().Format(time.DateTime+" UTC") + " (" + text.Relative(l.Since, now) + ")"
	case now.Sub(l.Seen) >= time.Second:
		since = "at least " + text.Age(l.Seen, now) + " ago: etcd stores no time"
	}
	lease := "time unknown: " + cmp.Or(l.Lease.Why, "not read yet")
	if !l.Lease.Expires.IsZero() {
		lease = fmt.Sprintf("for %s, kept alive %s, ends %s unless it is kept alive again", text.Duration(l.Lease.TTL),
			text.Relative(l.Lease.Expires.Add(-l.Lease.TTL), now), text.Relative(l.Lease.Expires, now))
	}
	ends := "all keys of that session"
	if l.Lease.Keys > 0 {
		ends = text.Count(l.Lease.Keys, "key")
	}
	return []Fact{{Label: "state", Text: kind}, {Label: "value", Text: cmp.Or(text.Visible(l.Value), "no text")},
		{Label: "key", Text: text.Visible(l.Key)}, {Label: "since", Text: since},
		{Label: "lease", Text: fmt.Sprintf("%x, %s", l.Lease.ID, text.Prose(lease))},
		{"to end it", "which deletes " + ends + "; the holder is not stopped",
			fmt.Sprintf("etcdctl lease revoke %x", l.Lease.ID)}}
}

// Record returns what is known of the hold in the form of a record, for what shows records.
func (l *Leased) Record() *metadata.Record {
	return &metadata.Record{Name: l.Name, Token: l.Token, Identity: metadata.Identity{Owner: l.Value},
		LockedAt: l.Since}
}

// NewLeasedRow returns the row of a lock of another library.
func NewLeasedRow(l *Leased, now time.Time) *Row {
	r := &Row{Record: l.Record(), Queue: new(QueueOf(l.Waiters, now)), Leased: l, Display: LeasedState,
		Class: ClassLeased, Judgement: staleness.Judgement{State: LeasedState}}
	r.Fingerprint = Hash(xxhash.Sum64String(l.Key), uint64(l.Token), uint64(l.Lease.Expires.Unix()), uint64(r.Waiters),
		xxhash.Sum64String(l.Value))
	return r
}

// LeasedNamed returns the locks of other libraries with this name: a queue, a single key, or both.
func (s *Snapshot) LeasedNamed(name string) []*Row {
	return slices.DeleteFunc(slices.Clone(s.Leased), func(r *Row) bool { return r.Name != name })
}

func (s *Snapshot) everyRow() []*Row {
	if len(s.Leased) == 0 {
		return s.Rows
	}
	return slices.Concat(s.Rows, s.Leased)
}
